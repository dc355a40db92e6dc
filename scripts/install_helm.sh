#!/bin/sh
# Builds helm for the tests of deploy/helm: install_helm.sh FOLDER puts FOLDER/helm there. A helm on PATH is used
# instead, and then nothing is built. FOLDER/.. is a virtual environment, such as .venv: see go.sh.
set -eu
VERSION=v3.22.0
MODULE=helm.sh/helm/v3
OLDEST_GO=26 # of Go 1: what the module's go.mod asks for

command -v helm >/dev/null && exit 0
[ -x "$1/helm" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/go.sh"

GOBIN=$folder go install -trimpath -ldflags "-s -w -X $MODULE/internal/version.version=$VERSION" \
    "$MODULE/cmd/helm@$VERSION"
mv "$folder/helm" "$1/helm"
