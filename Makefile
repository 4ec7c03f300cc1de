# A thin face over Meson and the scripts. `make help` lists what it does.
BUILD ?= build

.PHONY: all check lint sanitize bench fuzz soak install clean help

all: $(BUILD)/build.ninja ## build everything (on a fresh machine, install what that needs first)
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	command -v meson >/dev/null && command -v ninja >/dev/null || scripts/setup
	meson setup $(if $(PREFIX),--prefix $(PREFIX)) $(BUILD)

check: ## install what is needed, build, run the tests
	scripts/setup
	scripts/check $(BUILD)

lint: all ## clang-tidy and cppcheck
	scripts/lint $(BUILD)

sanitize: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer, then ThreadSanitizer
	scripts/sanitize address $(BUILD)-address
	scripts/sanitize thread $(BUILD)-thread

bench: all ## raia and its peers in turn, ratios printed
	scripts/bench $(BUILD)

fuzz: ## libFuzzer on every parser of foreign bytes, FUZZ_SECONDS (60) each
	scripts/fuzz $(BUILD)-fuzz

soak: all ## the suites that lose ranks, nodes and connections, SOAK_ROUNDS (20) times
	scripts/soak $(BUILD)

install: all ## program, library, headers and raia.pc under PREFIX (/usr/local); DESTDIR is obeyed
	$(if $(PREFIX),meson configure $(BUILD) -Dprefix=$(PREFIX) && ninja -C $(BUILD))
	meson install -C $(BUILD) --no-rebuild

clean: ## remove the build folders
	rm -rf $(BUILD) $(BUILD)-address $(BUILD)-thread $(BUILD)-fuzz

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
