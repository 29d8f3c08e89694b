# Sourced by the scripts that test a plug-in, after common.sh: parts that are run one after another, and their outcome.
# Each part is a function of the script and ends with a line "N passed, N failed"; one that does not counts as a failure.
# ROUNDS: crash rounds of each kind (default 15).

export ROUNDS=${ROUNDS:-15} BUILD_DIR
case $ROUNDS in '' | *[!0-9]* | 0) die "ROUNDS must be a number, as ROUNDS=1000" ;; esac

work=$(mktemp -d "${TMPDIR:-/tmp}/imbrex-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 143' TERM INT HUP

# new_drive NAME: a formatted drive; prints its path.
new_drive() {
    local drive=$work/$1.img
    "$BUILD_DIR/imbrex" drive create "$drive" --profile hgst-hsh721414al >&2
    "$BUILD_DIR/imbrex" fs format "$drive" >&2
    echo "$drive"
}

# run_parts ENGINE ALL PART…: runs those parts of ALL (words in one argument), or all, without those that are given as -PART; exits.
run_parts() {
    local engine=$1 status=0 part out began ok passed failed
    local all=" $2 " verdicts=() parts=("${@:3}")
    if [[ ${3:--} = -* ]]; then
        for part in "${parts[@]}"; do
            [[ $part = -* ]] || die "parts are named, as $part, or left out, as ${parts[0]}; not both"
            part=${part#-}
            [[ $all == *" $part "* ]] || die "no part called $part; see the head of this script"
            all=${all/" $part "/ }
        done
        read -ra parts <<<"$all"
    fi
    for part in "${parts[@]}"; do
        [[ $all == *" $part "* ]] || die "no part called $part; see the head of this script"
    done
    for part in "${parts[@]}"; do
        say "$engine: $part"
        out=$work/$part.out
        began=$SECONDS
        ok=1
        # A shell of its own, since `set -e` does not hold inside a condition.
        set +e
        (
            set -e
            "$part"
        ) 2>&1 | tee "$out"
        [ "${PIPESTATUS[0]}" = 0 ] || ok=0
        set -e
        if ! grep -qE '^[0-9]+ passed, [0-9]+ failed$' "$out"; then
            warn "$part ended before it said how many tests it ran; that counts as one failure"
            echo "0 passed, 1 failed"
            ok=0
        fi
        read -r passed failed < <(count_line "$out")
        if [ "$passed" = 0 ] || [ "$failed" != 0 ]; then ok=0; fi
        verdicts+=("$part: $passed passed, $failed failed, $((SECONDS - began)) s$([ $ok = 1 ] || echo ' FAILED')")
        [ $ok = 1 ] || status=1
    done
    say "$engine, by part"
    printf '   %s\n' "${verdicts[@]}"
    exit $status
}
