#!/bin/sh
# Builds the programs that use the client go-amqp: install_go_amqp.sh FOLDER puts FOLDER/oncewire-go-amqp-login and the
# others there. FOLDER/.. is a virtual environment, such as .venv: see go.sh.
set -eu
VERSION=v1.7.0
OLDEST_GO=25 # of Go 1: what the module's go.mod asks for
PROJECT=$(cd "$(dirname "$0")/.." && pwd)

PROGRAMS="login:tests/interop/login_clients/go_amqp requests:examples/request_reply/go_amqp
selector:tests/interop/go_selector journal:tests/interop/go_journal"

missing=
for program in $PROGRAMS; do
    [ -x "$1/oncewire-go-amqp-${program%%:*}" ] || missing=1
done
[ "$missing" ] || exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/go.sh"

mkdir "$folder/module" "$folder/built"
cat >"$folder/module/go.mod" <<END
module oncewire-go-amqp
go 1.$OLDEST_GO
require github.com/Azure/go-amqp $VERSION
END
for program in $PROGRAMS; do
    mkdir "$folder/module/${program%%:*}"
    cp "$PROJECT/${program#*:}/main.go" "$folder/module/${program%%:*}"
    (cd "$folder/module" && go build -mod=mod -o "$folder/built/oncewire-go-amqp-${program%%:*}" "./${program%%:*}")
done
mv "$folder/built"/* "$1"
