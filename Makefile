# Imbrex. `make` alone prints what there is.
#
# Every target that needs tools calls scripts/setup first; it installs what is missing and is instant otherwise.
# Variables: PREFIX, DESTDIR, LIBDIR, STRIP=: (install), ROUNDS (test, test-long, test-crash, test-releases, matrix), STATES and SEED (crash-states), SEED and OPERATIONS (test-ceph), PARTS and STATES (test-long), PROFILES (matrix), IMBREX_CACHE (test-releases: where RocksDB is built), BENCH_ARGS, KEEP=1 (demo), IMBREX_COMMANDS, IMBREX_SEED, IMBREX_SCRIPTS (test-kernel), CARGO_TARGET_DIR.

SHELL := /bin/bash
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
STRIP ?= strip
DESTDIR ?=
ROUNDS ?=
.DEFAULT_GOAL := help
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.PHONY: help setup demo build test test-long test-releases test-ceph test-crash crash-states matrix test-kernel bench bench-full fuzz lint fmt clean install deb

help: ## print this
	@echo 'Imbrex: RocksDB and LevelDB on zoned drives, without a kernel file system. Targets:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: ## install what is missing (every other target does it too)
	@scripts/setup

demo: setup ## from nothing to RocksDB and LevelDB on an emulated 14 TB drive, with figures and a picture
	@scripts/demo

build: setup ## build/imbrex, build/libimbrex.so.1, build/imbrex.h, build/librocksdb_imbrex.so, build/librocksdb_kv_imbrex-VERSION.so, build/libleveldb_imbrex.so, build/libleveldb_kv_imbrex.so
	@scripts/build

test: setup ## all tests
	@$(if $(ROUNDS),ROUNDS=$(ROUNDS)) scripts/test

test-long: setup ## what takes hours: 100,000 crash states of each engine, 1,000 crash rounds, other releases (PARTS="states shuttle")
	@$(if $(ROUNDS),ROUNDS=$(ROUNDS)) $(if $(STATES),STATES=$(STATES)) scripts/test-long $(PARTS)

test-ceph: setup ## a real OSD of Ceph against the object store, with loads of SEED=1 and OPERATIONS=400
	@$(if $(SEED),SEED=$(SEED)) $(if $(OPERATIONS),OPERATIONS=$(OPERATIONS)) scripts/test-ceph

test-kernel: setup ## the kernel's own zoned block devices, in a VM (QEMU is installed if it can be)
	@scripts/test-kernel

test-releases: build ## other releases of RocksDB, which are built first (half an hour of a core each, once)
	@for release in $$(ls -d bindings/rocksdb/releases/*/); do scripts/test-rocksdb-release "$$(basename $$release)" || exit 1; done

test-crash: build ## RocksDB and LevelDB killed and powered off at random moments, ROUNDS=1000 times each
	@ROUNDS=$(or $(ROUNDS),1000) scripts/test-rocksdb crash_rounds
	@ROUNDS=$(or $(ROUNDS),1000) scripts/test-leveldb crash_rounds
	@ROUNDS=$(or $(ROUNDS),1000) scripts/test-leveldb-kv crash_rounds
	@ROUNDS=$(or $(ROUNDS),1000) scripts/test-rocksdb-kv crash_rounds

crash-states: setup ## STATES=1000000 crash states of the chunk store (ENGINE=bluefs: of bluefs, kv: of kv, both: of several on one drive), from seed SEED=0 on
	@scripts/crash-states --engine $(or $(ENGINE),chunks) --states $(or $(STATES),20000) --seed $(or $(SEED),0)

matrix: build ## every drive profile, block size, write cache and cache: load, verify, crash (a quarter of an hour)
	@$(if $(ROUNDS),ROUNDS=$(ROUNDS)) scripts/matrix

bench: build ## every experiment once at 1/64 (build/experiments/index.html), then both sides of every comparison by the wall clock
	@scripts/bench $(BENCH_ARGS)

bench-full: build ## experiments with repeats, and at other scales and speeds, compared (some two hours on four processors)
	@scripts/bench --full

fuzz: setup ## fuzz every decoder
	@scripts/fuzz

lint: setup ## formatting, clippy, licences of dependencies
	@scripts/lint

fmt: setup ## format the Rust sources
	@cargo fmt --all

clean: ## remove what building left (not what setup installed)
	rm -rf build $(or $(CARGO_TARGET_DIR),target) fuzz/target

deb: build ## a Debian package of what `make install` installs: build/imbrex_VERSION_ARCH.deb
	@scripts/deb

SHARED := share/man/man1 share/doc/imbrex share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d

# Not libimbrex.so, which is a link.
INSTALLED_LIBS = $(filter-out build/libimbrex.so,$(wildcard build/*.so build/libimbrex.so.*))

install: ## install what `make build` built: PREFIX=/usr/local DESTDIR= LIBDIR=PREFIX/lib
	@test -x build/imbrex || { echo 'install: nothing is built yet; run `make build` first (not as root)' >&2; exit 1; }
	install -d $(addprefix '$(DESTDIR)$(PREFIX)'/,bin include $(SHARED)) '$(DESTDIR)$(LIBDIR)/pkgconfig'
	install -m 755 build/imbrex '$(DESTDIR)$(PREFIX)/bin/'
	install -m 644 $(INSTALLED_LIBS) '$(DESTDIR)$(LIBDIR)/'
	$(STRIP) --strip-unneeded '$(DESTDIR)$(PREFIX)/bin/imbrex' $(patsubst build/%,'$(DESTDIR)$(LIBDIR)/%',$(INSTALLED_LIBS))
	ln -sfn "$$(readlink build/libimbrex.so)" '$(DESTDIR)$(LIBDIR)/libimbrex.so'
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|' build/imbrex.pc.in >'$(DESTDIR)$(LIBDIR)/pkgconfig/imbrex.pc'
	install -m 644 build/*.h '$(DESTDIR)$(PREFIX)/include/'
	install -m 644 build/man/*.1 '$(DESTDIR)$(PREFIX)/share/man/man1/'
	install -m 644 build/completions/imbrex '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/'
	install -m 644 build/completions/_imbrex '$(DESTDIR)$(PREFIX)/share/zsh/site-functions/'
	install -m 644 build/completions/imbrex.fish '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/'
	install -m 644 LICENSE README.md CHANGELOG.md docs/*.md '$(DESTDIR)$(PREFIX)/share/doc/imbrex/'
	@test -n '$(DESTDIR)' || test "$$(id -u)" != 0 || ldconfig
