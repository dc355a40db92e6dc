#!/bin/sh
# Fetches what the site of `make docs` would load from another site, from the npm registry: fetch_site_parts.sh FOLDER puts
# Mermaid, which draws the diagrams, there, and the shim that the search needs where the site is opened without a server,
# each with its licence. What is there already is not fetched again. npm checks the packages' integrity; none of their
# scripts is run.
set -eu
MERMAID=11.17.2
IFRAME_WORKER=1.0.4

grep -qs "^$MERMAID $IFRAME_WORKER\$" "$1/versions.txt" && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fetch() { # FOLDER PACKAGE VERSION FILE
    # One try of half a minute: without a network the site is built without it.
    npm pack --silent --ignore-scripts --fetch-retries=0 --fetch-timeout=30000 \
        --pack-destination "$folder" "$2@$3" >/dev/null
    tar -xzf "$folder/$2-$3.tgz" -C "$folder" "package/$4" package/LICENSE
    cp "$folder/package/$4" "$1/$2.js"
    cp "$folder/package/LICENSE" "$1/$2.LICENSE.txt"
}

mkdir -p "$1"
fetch "$1" mermaid "$MERMAID" dist/mermaid.min.js
fetch "$1" iframe-worker "$IFRAME_WORKER" shim/index.js
echo "$MERMAID $IFRAME_WORKER" >"$1/versions.txt"
