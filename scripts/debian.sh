# Sourced by scripts that take packages of Debian's other releases and unpack them. They have a function `cannot`, which ends them with a sentence.

# other_releases DIRECTORY SUITE…: what apt does from here on knows these releases' lists, kept there, from where this machine has its own. Needs root.
other_releases() {
    local uri keys=/usr/share/keyrings/debian-archive-keyring.gpg apt=$1 suite
    shift
    archive() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n1; }
    uri=$(archive)
    # A new machine has no lists.
    [ -n "$uri" ] || { apt-get -qq update >&2 && uri=$(archive); } || true
    [ -n "$uri" ] || cannot "apt knows no archive of Debian; run apt-get update"
    [ -r $keys ] || cannot "no keys of Debian's archive here; install debian-archive-keyring"
    mkdir -p "$apt"/{lists/partial,cache/archives/partial,state,none}
    : >"$apt/status"
    for suite in "$@"; do
        # A mirror that is kept as it was on some day is as good; who signed it is looked at all the same.
        echo "deb [arch=amd64 check-valid-until=no signed-by=$keys] $uri $suite main"
    done >"$apt/sources.list"
    cat >"$apt/conf" <<CONF
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "$apt/none";
Dir::Etc::Parts "$apt/none";
Dir::State "$apt/state";
Dir::State::Lists "$apt/lists";
Dir::State::Status "$apt/status";
Dir::Cache "$apt/cache";
Acquire::Languages "none";
APT::Architecture "amd64";
APT::Sandbox::User "root";
CONF
    export APT_CONFIG=$apt/conf
    apt-get -qq update >&2 || cannot "apt-get could not read the package lists of Debian's $*"
}
