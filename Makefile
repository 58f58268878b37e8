# The commands of this project. They install what they need; run them as root on Debian 12.
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
# What a command needs is installed and prepared by vm-testbed/prepare.py, and nothing else.
prepare = @vm-testbed/bootstrap.sh && exec /usr/bin/python3 -B vm-testbed/prepare.py
KEEP ?=
FUZZ_INPUTS ?= 1000000
STORE ?=
RACK ?=
PCAP ?=
DISCOVERY ?=
DRIVER ?=

.PHONY: help install fetch deb demo vagrant test test-fast fuzz mutate bench docs house lint proto lock sbom clean

help:
	@echo "make deb [CHECK=1]  the Debian package for 12 and 13, in build/: apt install ./build/layercake_*.deb; with CHECK=1 Debian's"
	@echo "                    lintian, piuparts and autopkgtest judge it"
	@echo "make demo [KEEP=1] [HEADS=2] [STORE=rbd] [RACK=libvirt] [PCAP=DIR]  a virtual rack from power-off to running images; with STORE=rbd out of a real"
	@echo "                    Ceph, with RACK=libvirt on libvirt domains whose BMCs are virtualbmc and sushy-emulator; with PCAP=DIR"
	@echo "                    DIR/NAME.pcap has what machine NAME says and hears; with DISCOVERY=1 there are two machines more, which no inventory"
	@echo "                    knows: they are discovered, taken in by their switch ports, and reached by ssh"
	@echo "make vagrant [DRIVER=qemu]  the Vagrantfile's rack on a libvirtd of its own, from a box made here to running images, and away again"
	@echo "make sim [NODES=200] [LISTEN=127.0.0.1:8443]  a head with simulated nodes, and a link to its dashboard; needs python3-venv, and no root"
	@echo "make test           unit, integration and VM tests"
	@echo "make test-fast      the same without the VM tests"
	@echo "make fuzz [FUZZ_INPUTS=N]  a million hostile inputs, or N, to each parser; what fails goes to build/fuzz"
	@echo "make mutate [MUTANTS=300] [PART=guard]  plants small faults in the code and has its tests find them; goes on where it was interrupted"
	@echo "make bench          the benchmarks in tests/bench, and one table of their figures, the peers' and those recorded last"
	@echo "make lock [NEWER=1] what pyproject.toml needs, pinned by hash: requirements.lock, requirements-dev.lock"
	@echo "make sbom           what Layercake itself is made of, as CycloneDX: build/sbom.cdx.json"
	@echo "make house          measures the structure of the product"
	@echo "make docs           the documentation as a site: build/docs/index.html, which a head of this clone serves at /docs/"

# Debian's own Python: the node runs the same version, and Ceph's bindings exist for no other. Nothing is installed but what the lock
# files name by its hash.
install:
	$(prepare) install

# What needs the network is fetched before anything is tested, with retries, and kept.
fetch:
	$(prepare) fetch

CHECK ?=
deb:
	$(prepare) deb$(if $(CHECK),+check) --then sh -c 'package=$$($(PY) -m layercake.debian.build) && echo $$package $(if $(CHECK),&& $(PY) vm-testbed/packagecheck.py $$package)'

# libvirt's domains have BMCs of their own: virtualbmc and sushy-emulator, in an environment of their own.
demo:
	$(prepare) demo$(if $(DISCOVERY),+discovery)$(if $(filter rbd,$(STORE)),+rbd)$(if $(filter libvirt,$(RACK)),+libvirt)$(if $(PCAP),+pcap)$(if $(filter 2,$(HEADS)),+heads) --then \
	$(PY) vm-testbed/demo.py $(if $(KEEP),--keep) $(if $(STORE),--store $(STORE)) $(if $(RACK),--rack $(RACK)) $(if $(PCAP),--pcap $(PCAP)) $(if $(DISCOVERY),--discovery) $(if $(HEADS),--heads $(HEADS))

# A head with simulated nodes. Faults come now and then: a few nodes flap, hang or have a bad BMC, and a rack goes dark for a minute.
NODES ?= 200
LISTEN ?= 127.0.0.1:8443
SIM_TIMES := --firmware 3s --kernel 2s
SIM_FAULTS := --flap 2% --dead 2% --bad-bmc 2% --dark rack0000 --at 3m --for 1m --every 10m
.PHONY: sim
sim:
	$(prepare) sim
	@$(VENV)/bin/layercake sim run --nodes $(NODES) --listen $(LISTEN) $(SIM_TIMES) $(SIM_FAULTS)

# Its libvirtd is in namespaces of its own; the box is kept. Without DRIVER it tries whether KVM works.
vagrant:
	$(prepare) vagrant --then $(PY) vm-testbed/vagrantwalk.py $(if $(DRIVER),--driver $(DRIVER))

# Five workers, a file at a time: the tests of a file share what took long to start. Who takes which: tests/support/sharing.py
TOGETHER := -n 5 --dist loadfile --no-loadscope-reorder

test:
	$(prepare) test --then $(PY) -m tests.again $(TOGETHER)

test-fast:
	$(prepare) test-fast --then $(PY) -m pytest $(TOGETHER) -m "not vm"

fuzz: install
	$(PY) -m tests.fuzz --inputs $(FUZZ_INPUTS)

# How many of a part's mutants its tests kill; what is known of them is kept in build/mutate.
MUTANTS ?= 300
PART ?=
mutate: install
	$(PY) -m tests.mutate $(PART) --sample $(MUTANTS)

bench: fetch
	$(PY) -m tests.bench

# The reference is generated from the code first; a warning is an error.
docs: install
	$(PY) -m docs.generate
	$(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

# Measures the structure of the product: statements, circles of imports, names, width, complexity.
house: install
	$(PY) -m tests.contract.house

lint: install
	$(PY) -m pytest tests/contract

# Keeps the versions that are there, as long as pyproject.toml allows them; NEWER=1 takes the newest of all.
LOCK := uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	--python-version 3.11 --python-platform x86_64-manylinux_2_31 $(if $(NEWER),--upgrade) pyproject.toml
lock:
	@[ -x $(VENV)/bin/uv ] || { python3 -m venv build/lock && build/lock/bin/pip install -q uv; }
	PATH=$$PWD/$(VENV)/bin:$$PWD/build/lock/bin:$$PATH $(LOCK) --extra dev -o requirements-dev.lock
	PATH=$$PWD/$(VENV)/bin:$$PWD/build/lock/bin:$$PATH $(LOCK) --extra demo -c requirements-dev.lock -o requirements-demo.lock
	PATH=$$PWD/$(VENV)/bin:$$PWD/build/lock/bin:$$PATH $(LOCK) -c requirements-dev.lock -o requirements.lock
	PATH=$$PWD/$(VENV)/bin:$$PWD/build/lock/bin:$$PATH $(subst pyproject.toml,vm-testbed/libvirt.in,$(LOCK)) --no-emit-package libvirt-python -o vm-testbed/libvirt.lock

sbom: install
	@mkdir -p build
	$(PY) -W ignore::UserWarning -m cyclonedx_py requirements --pyproject pyproject.toml --sv 1.5 --of JSON --output-reproducible -o build/sbom.cdx.json requirements.lock
	$(PY) -m layercake.debian.sbom build/sbom.cdx.json

proto: install
	cd layercake/moduleapi && ../../$(PY) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. module.proto

clean:
	rm -rf $(VENV) .venv-libvirt build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis layercake/dashboard/web/xterm
	find examples tests layercake -name node_modules -prune -exec rm -rf {} +
