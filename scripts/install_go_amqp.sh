#!/bin/sh
# Builds the program of tests/interop/login_clients/go_amqp with the client go-amqp: install_go_amqp.sh FOLDER puts
# FOLDER/oncewire-go-amqp-login there. FOLDER/.. is a virtual environment, such as .venv: see go.sh.
set -eu
VERSION=v1.7.0
OLDEST_GO=25 # of Go 1: what the module's go.mod asks for

[ -x "$1/oncewire-go-amqp-login" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/go.sh"

mkdir "$folder/module"
cp "$(dirname "$0")/../tests/interop/login_clients/go_amqp/main.go" "$folder/module"
cat >"$folder/module/go.mod" <<END
module oncewire-go-amqp-login
go 1.$OLDEST_GO
require github.com/Azure/go-amqp $VERSION
END
bin=$(cd "$1" && pwd)
(cd "$folder/module" && go build -mod=mod -o "$folder/oncewire-go-amqp-login" .)
mv "$folder/oncewire-go-amqp-login" "$bin/oncewire-go-amqp-login"
