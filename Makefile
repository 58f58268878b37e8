# The commands of this project. They install what they need; run them as root on Debian 12.
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
APT := DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq
# The virtual rack, minOS and image builds, and the foreign clients that the tests speak to us with.
PACKAGES := $(shell grep -hv '^\#' vm-testbed/packages.txt packages.txt)
KEEP ?=
FUZZ_INPUTS ?= 1000000
STORE ?=
RACK ?=
PCAP ?=
DISCOVERY ?=
DRIVER ?=

.PHONY: help install fetch deb demo vagrant test test-fast fuzz bench docs lint proto lock sbom clean

help:
	@echo "make deb            the Debian package for 12 and 13, in build/: apt install ./build/layercake_*.deb"
	@echo "make demo [KEEP=1] [STORE=rbd] [RACK=libvirt] [PCAP=DIR]  a virtual rack from power-off to running images; with STORE=rbd out of a real"
	@echo "                    Ceph, with RACK=libvirt on libvirt domains whose BMCs are virtualbmc and sushy-emulator; with PCAP=DIR"
	@echo "                    DIR/NAME.pcap has what machine NAME says and hears; with DISCOVERY=1 there are two machines more, which no inventory"
	@echo "                    knows: they are discovered, taken in by their switch ports, and reached by ssh"
	@echo "make vagrant [DRIVER=qemu]  the Vagrantfile's rack on a libvirtd of its own, from a box made here to running images, and away again"
	@echo "make test           unit, integration and VM tests"
	@echo "make test-fast      the same without the VM tests"
	@echo "make fuzz [FUZZ_INPUTS=N]  a million hostile inputs, or N, to each parser; what fails goes to build/fuzz"
	@echo "make bench          the benchmarks in tests/bench"
	@echo "make lock [NEWER=1] what pyproject.toml needs, pinned by hash: requirements.lock, requirements-dev.lock"
	@echo "make sbom           what Layercake itself is made of, as CycloneDX: build/sbom.cdx.json"
	@echo "make docs           the documentation as a site: build/docs/index.html"

# Debian packages that are not there yet.
apt-install = missing=$$(for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ]; then echo "installing $$missing" | tr '\n' ' '; echo; \
	$(APT) update && $(APT) install -y --no-install-recommends $$missing >/dev/null; fi

$(VENV)/.apt: packages.txt vm-testbed/packages.txt
	@$(call apt-install,$(PACKAGES))
	@mkdir -p $(VENV) && touch $@

# Debian's own Python: the node runs the same version, and Ceph's bindings exist for no other.
# Nothing is installed but what the lock file names by its hash.
$(VENV)/.python: pyproject.toml requirements-dev.lock $(VENV)/.apt
	@[ -x $(PY) ] || /usr/bin/python3 -m venv --system-site-packages $(VENV)
	@$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(PY) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The libraries of the example module in Node.js, the OpenID provider of the tests, and what looks at the dashboard. Debian's npm is not
# wanted beside another that is there already.
NPM := examples/modules/thermal-node tests/access/provider tests/dashboard
npm = command -v npm >/dev/null || { $(APT) update && $(APT) install -y --no-install-recommends nodejs npm >/dev/null; }; \
	for place in $(1); do for wait in 5 20 0; do npm ci --prefix $$place --no-audit --no-fund --ignore-scripts --silent && break; \
	[ $$wait != 0 ] || exit 1; sleep $$wait; done; done
$(VENV)/.npm: $(NPM:%=%/package-lock.json) $(VENV)/.python
	@$(call npm,$(NPM))
	@touch $@

# xterm.js, which shows consoles in the dashboard: copied out of node_modules to what is served, and in no commit.
DASHBOARD := layercake/dashboard
XTERM := $(DASHBOARD)/web/xterm
$(XTERM)/xterm.js: $(DASHBOARD)/package-lock.json $(VENV)/.apt
	@$(call npm,$(DASHBOARD))
	@mkdir -p $(XTERM) && cd $(DASHBOARD)/node_modules/@xterm && cp xterm/css/xterm.css xterm/LICENSE $(CURDIR)/$(XTERM) \
	&& sed '/^\/\/# sourceMappingURL/d' addon-fit/lib/addon-fit.mjs >$(CURDIR)/$(XTERM)/fit.js \
	&& sed '/^\/\/# sourceMappingURL/d' xterm/lib/xterm.mjs >$(CURDIR)/$@

install: $(VENV)/.python $(XTERM)/xterm.js

# What needs the network is fetched before anything is tested, with retries, and kept.
fetch: install
	@$(PY) vm-testbed/prefetch.py

deb: install
	@$(PY) -m layercake.debian.build

# libvirt's domains have BMCs of their own: virtualbmc and sushy-emulator, with what they need, in an environment of their own.
VENV_LIBVIRT := .venv-libvirt
LIBVIRT_PACKAGES := $(shell grep -v '^\#' vm-testbed/packages-libvirt.txt)
$(VENV_LIBVIRT)/.done: vm-testbed/libvirt.lock vm-testbed/packages-libvirt.txt
	@$(call apt-install,$(LIBVIRT_PACKAGES))
	@/usr/bin/python3 -m venv --system-site-packages $(VENV_LIBVIRT)
	@$(VENV_LIBVIRT)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r vm-testbed/libvirt.lock
	@touch $@

demo: fetch $(if $(filter libvirt,$(RACK)),$(VENV_LIBVIRT)/.done)
	$(PY) vm-testbed/demo.py $(if $(KEEP),--keep) $(if $(STORE),--store $(STORE)) $(if $(RACK),--rack $(RACK)) $(if $(PCAP),--pcap $(PCAP)) $(if $(DISCOVERY),--discovery)

# Its libvirtd is in namespaces of its own; the box is kept. Without DRIVER it tries whether KVM works.
vagrant: install $(VENV_LIBVIRT)/.done
	@$(call apt-install,$(shell grep -v '^\#' vm-testbed/packages-vagrant.txt))
	$(PY) -u vm-testbed/vagrantwalk.py $(if $(DRIVER),--driver $(DRIVER))

# Three workers, a file at a time: the tests of a file share what took long to start. Who takes which: tests/support/sharing.py
TOGETHER := -n 3 --dist loadfile --no-loadscope-reorder

test: fetch $(VENV)/.npm $(VENV_LIBVIRT)/.done
	$(PY) -m pytest $(TOGETHER)

test-fast: fetch $(VENV)/.npm
	$(PY) -m pytest $(TOGETHER) -m "not vm"

fuzz: install
	$(PY) -m tests.fuzz --inputs $(FUZZ_INPUTS)

bench: fetch
	@for name in $$(ls tests/bench/*.py | xargs -n1 basename | grep -v '^_' | sed 's/\.py$$//'); do \
	echo "== $$name"; $(PY) -m tests.bench.$$name || exit 1; done

# The reference is generated from the code first; a warning is an error.
docs: install
	$(PY) -m docs.generate
	$(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

lint: install
	$(PY) -m pytest tests/contract

# Keeps the versions that are there, as long as pyproject.toml allows them; NEWER=1 takes the newest of all.
LOCK := uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	--python-version 3.11 --python-platform x86_64-manylinux_2_31 $(if $(NEWER),--upgrade) pyproject.toml
lock:
	@[ -x $(VENV)/bin/uv ] || { python3 -m venv build/lock && build/lock/bin/pip install -q uv; }
	PATH=$$PWD/$(VENV)/bin:$$PWD/build/lock/bin:$$PATH $(LOCK) --extra dev -o requirements-dev.lock
	PATH=$$PWD/$(VENV)/bin:$$PWD/build/lock/bin:$$PATH $(LOCK) -c requirements-dev.lock -o requirements.lock
	PATH=$$PWD/$(VENV)/bin:$$PWD/build/lock/bin:$$PATH $(subst pyproject.toml,vm-testbed/libvirt.in,$(LOCK)) --no-emit-package libvirt-python -o vm-testbed/libvirt.lock

sbom: install
	@mkdir -p build
	$(PY) -W ignore::UserWarning -m cyclonedx_py requirements --pyproject pyproject.toml --sv 1.5 --of JSON --output-reproducible -o build/sbom.cdx.json requirements.lock
	$(PY) -m layercake.debian.sbom build/sbom.cdx.json

proto: install
	cd layercake/moduleapi && ../../$(PY) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. module.proto

clean:
	rm -rf $(VENV) $(VENV_LIBVIRT) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis $(NPM:%=%/node_modules) $(DASHBOARD)/node_modules $(XTERM)
