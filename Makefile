# A thin face over Meson and the scripts.
BUILD ?= build

.PHONY: all check clean
all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD)

check:
	scripts/setup
	scripts/check $(BUILD)

clean:
	rm -rf $(BUILD)
