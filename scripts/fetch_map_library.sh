#!/bin/sh
# Fetches the library that draws the inspector's map, cytoscape, from the npm registry: fetch_map_library.sh FOLDER puts
# the module and its licence there. What is there already is not fetched again. npm checks the package's integrity; none
# of its scripts is run.
set -eu
VERSION=3.34.4

[ -s "$1/cytoscape.esm.min.mjs" ] && grep -qs "^$VERSION\$" "$1/version.txt" && exit 0
command -v npm >/dev/null || { echo "npm is missing (sudo apt-get install -y nodejs npm)" >&2; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# One try of half a minute: a set-up without a network goes on without the map.
npm pack --silent --ignore-scripts --fetch-retries=0 --fetch-timeout=30000 \
    --pack-destination "$folder" "cytoscape@$VERSION" >/dev/null
tar -xzf "$folder/cytoscape-$VERSION.tgz" -C "$folder" package/dist/cytoscape.esm.min.mjs package/LICENSE
mkdir -p "$1"
cp "$folder/package/LICENSE" "$1/cytoscape.LICENSE.txt"
cp "$folder/package/dist/cytoscape.esm.min.mjs" "$1/"
echo "$VERSION" >"$1/version.txt"
