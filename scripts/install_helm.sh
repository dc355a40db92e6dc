#!/bin/sh
# Builds helm for the tests of deploy/helm: install_helm.sh FOLDER puts FOLDER/helm there. A helm on PATH is used
# instead, and then nothing is built. FOLDER/.. is a virtual environment, such as .venv: see go.sh.
# Without a cluster helm supposes a version of Kubernetes, which is 1.20 where its own build file does not set another.
set -eu
VERSION=v3.22.0
MODULE=helm.sh/helm/v3
KUBERNETES=37 # of Kubernetes 1: what its go.mod has as k8s.io/client-go
OLDEST_GO=26  # of Go 1: what the module's go.mod asks for

command -v helm >/dev/null && exit 0
[ "$("$1/helm" version --short 2>/dev/null)" = "$VERSION+kubernetes-1.$KUBERNETES" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/go.sh"

flags="-s -w -X $MODULE/internal/version.version=$VERSION -X $MODULE/internal/version.metadata=kubernetes-1.$KUBERNETES"
for package in pkg/chartutil pkg/lint/rules; do
    flags="$flags -X $MODULE/$package.k8sVersionMajor=1 -X $MODULE/$package.k8sVersionMinor=$KUBERNETES"
done
GOBIN=$folder go install -trimpath -ldflags "$flags" "$MODULE/cmd/helm@$VERSION"
mv "$folder/helm" "$1/helm"
