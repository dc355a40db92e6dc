#!/bin/sh
# Fetches RabbitMQ 4 from Debian 13, for the tests with stock brokers: fetch_rabbitmq.sh FOLDER puts the programs into FOLDER.
# Nothing is installed and no root is needed, on any Debian: Erlang runs with the C library that came with it. apt checks
# the packages of the machine's own mirror by the signatures and hashes of the release. FOLDER/rabbitmq-server starts a server; see tests/support/brokers.py.
set -eu
SUITE=trixie
PACKAGES="rabbitmq-server erlang-base erlang-crypto erlang-eldap erlang-inets erlang-mnesia erlang-os-mon erlang-parsetools
    erlang-public-key erlang-runtime-tools erlang-snmp erlang-asn1 erlang-ssl erlang-syntax-tools erlang-tools erlang-xmerl
    libc6 libstdc++6 libgcc-s1 libssl3t64 libtinfo6 zlib1g libzstd1 libsystemd0"

[ -e "$1/rabbitmq-server" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/state/lists/partial" "$folder/cache/archives/partial" "$folder/debs" "$folder/root"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Component: main' | grep -v -- -security | head -n 1)
[ -n "$mirror" ] || { echo "apt-get has no mirror of Debian: RabbitMQ cannot be fetched" >&2; exit 1; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $SUITE main" >"$folder/sources.list"
of_its_own() { # APT-GET-ARGUMENT...: with lists of its own, not the machine's
    apt-get -q -q -o "Dir::State=$folder/state" -o "Dir::State::status=/dev/null" -o "Dir::Cache=$folder/cache" \
        -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null \
        -o Dir::Etc::PreferencesParts=/dev/null -o "APT::Sandbox::User=$(id -un)" "$@"
}
of_its_own update
(cd "$folder/debs" && of_its_own download $PACKAGES)
for package in "$folder"/debs/*.deb; do dpkg-deb -x "$package" "$folder/root"; done

# Each program of Erlang is started by the loader of its own C library.
programs=$(echo "$folder"/root/usr/lib/erlang/erts-*/bin)
for program in "$programs"/beam.smp "$programs"/epmd "$programs"/erl_child_setup "$programs"/erlexec "$programs"/inet_gethost \
    "$folder"/root/usr/lib/erlang/lib/os_mon-*/priv/bin/*; do
    mv "$program" "$program.program"
    cat >"$program" <<'WRAPPER'
#!/bin/sh
here=$(readlink -f "$0")
libraries=$(echo "${here%/erlang/*}"/*-linux-gnu*)
exec "$libraries"/ld-linux-*.so.* --library-path "$libraries" "$here.program" "$@"
WRAPPER
    chmod +x "$program"
done
cat >"$programs/erl" <<'WRAPPER'
#!/bin/sh
export BINDIR=$(dirname "$(readlink -f "$0")") EMU=beam PROGNAME=erl
export ROOTDIR=$(readlink -f "$BINDIR/../..")
exec "$BINDIR/erlexec" "$@"
WRAPPER
cat >"$folder/root/rabbitmq-server" <<'WRAPPER'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export PATH="$(echo "$here"/usr/lib/erlang/erts-*/bin):$PATH"
exec "$here"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server "$@"
WRAPPER
chmod +x "$programs/erl" "$folder/root/rabbitmq-server"
mkdir -p "$(dirname "$1")"
rm -rf "$1"
mv "$folder/root" "$1"
