#!/bin/sh
# Builds FerretDB, a server with MongoDB's protocol, for the tests of work queues: install_ferretdb.sh FOLDER puts
# FOLDER/oncewire-ferretdb there. What $ONCEWIRE_FERRETDB names, or what is on PATH, is used instead.
# FOLDER/.. is a virtual environment, such as .venv: see go.sh.
set -eu
VERSION=v1.24.0
OLDEST_GO=22 # of Go 1: what the module's go.mod asks for

[ -z "${ONCEWIRE_FERRETDB:-}" ] || { [ -x "$ONCEWIRE_FERRETDB" ] && exit 0; }
command -v oncewire-ferretdb >/dev/null && exit 0
[ -x "$1/oncewire-ferretdb" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/go.sh"

mkdir "$folder/module"
cat >"$folder/module/go.mod" <<END
module oncewire-ferretdb
go 1.$OLDEST_GO
require github.com/FerretDB/FerretDB $VERSION
END
cat >"$folder/module/main.go" <<'END'
// FerretDB on SQLite files: oncewire-ferretdb file:FOLDER/ HOST:PORT.
package main

import (
	"context"
	"log"
	"os"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: os.Args[2]},
		Handler:   "sqlite",
		SQLiteURL: os.Args[1],
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = server.Run(context.Background())
}
END
bin=$(cd "$1" && pwd)
(cd "$folder/module" && go build -mod=mod -o "$folder/oncewire-ferretdb" .)
mv "$folder/oncewire-ferretdb" "$bin/oncewire-ferretdb"
