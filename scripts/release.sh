#!/bin/sh
# Makes what is released of this tree, in dist/: release.sh VENV SUPPLY. It builds the source packages and the wheels of
# oncewire (the client) and oncewire-server, whose bytes are the same in each build, and checks them with twine. It installs
# the client into one fresh environment and both into another, and sends messages through a router from each of them. It
# lists the parts of the image, packs the Helm chart where there is a helm, and writes the hashes of all files.
# VENV has a Python; SUPPLY has setuptools and twine (see the Makefile).
set -eu
venv=$1 supply=$2
unset PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT="$PWD/constraints.txt"

version=$("$venv/bin/python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
if grep -Eq "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md; then
    candidate=
elif grep -qx "## Unreleased ($version)" CHANGELOG.md; then
    candidate=yes
else
    echo "error: $version cannot be released" >&2
    echo "why: CHANGELOG.md has neither '## $version (YYYY-MM-DD)' nor '## Unreleased ($version)'" >&2
    echo "what to do: write down what changed, or set the version in pyproject.toml" >&2
    exit 2
fi
if [ ! -s topology/inspector/page/files/vendor/cytoscape.esm.min.mjs ]; then
    echo "error: $version cannot be released" >&2
    echo "why: the library of the inspector's map was not fetched, and the packages would be without it" >&2
    echo "what to do: run 'make inspector-map', which names what it lacks" >&2
    exit 2
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p dist
rm -rf dist/oncewire-"$version"* dist/oncewire_server-"$version"* dist/SHA256SUMS

echo "building oncewire and oncewire-server $version"
"$supply/bin/python" scripts/build_packages.py . dist
"$supply/bin/twine" check --strict dist/oncewire-"$version"* dist/oncewire_server-"$version"*

for kind in -py3-none-any.whl .tar.gz; do
    client=dist/oncewire-$version$kind server=dist/oncewire_server-$version$kind
    echo "trying $client alone, and with $server, in fresh environments"
    "$venv/bin/python" -m venv "$folder/client"
    "$folder/client/bin/python" -m pip install -q "$client"
    "$venv/bin/python" -m venv "$folder/both"
    "$folder/both/bin/python" -m pip install -q "$client[router]" "$server"
    # Outside the tree: what is tried is what was installed.
    (cd "$folder" && both/bin/python -P "$OLDPWD/scripts/try_release.py" "$version" "$folder/client/bin/python")
    rm -rf "$folder/client" "$folder/both"
done

echo "listing the parts of the image"
make --no-print-directory sbom >/dev/null
mv dist/oncewire.cdx.json "dist/oncewire-$version.cdx.json"
helm=$(command -v helm || echo "$venv/bin/helm")
if [ -x "$helm" ]; then
    "$helm" package deploy/helm/oncewire --destination "$folder/chart" >/dev/null
    mv "$folder/chart/oncewire-$version.tgz" "dist/oncewire-chart-$version.tgz"
else
    echo "no helm here: the chart is not packed ('make tools' builds one)" >&2
fi
(cd dist && sha256sum oncewire[-_]*"$version"* >SHA256SUMS && cat SHA256SUMS)

echo "the image is not among them: 'docker build -f deploy/Dockerfile -t oncewire:$version .' makes it, where a container daemon runs"
[ -z "$candidate" ] || echo "a candidate: to release it, write '## $version (DATE)' in CHANGELOG.md and tag v$version"
