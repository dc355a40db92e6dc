#!/bin/sh
# Fetches stock brokers for the tests of docs/brokers.md: fetch_brokers.sh FOLDER puts ActiveMQ Artemis and Qpid Broker-J (Maven
# Central) and RabbitMQ 4 (Debian 13) into FOLDER. It needs Maven, a Java of version 17 or newer, and apt-get.
set -eu
ARTEMIS=2.44.0
ARTEMIS_SHA256=d711e6aacd43fd2e3e90993260b2ad391a2e13392d6100e8f6f304f8a7bee801
BROKER_J=9.2.1
BROKER_J_SHA256=bfbfbcffc6a8ad904f97edc6dcebc688f232b582843b9cb1f240decb8b8a181a

mkdir -p "$1"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

from_maven() { # ARTIFACT FILE SHA256
    mvn -q -B dependency:copy "-Dartifact=$1" -DoutputDirectory="$folder"
    echo "$3  $folder/$2" | sha256sum --check --quiet
}

if [ ! -e "$1/apache-artemis-$ARTEMIS" ]; then
    file=apache-artemis-$ARTEMIS-bin.zip
    from_maven "org.apache.activemq:apache-artemis:$ARTEMIS:zip:bin" "$file" $ARTEMIS_SHA256
    python3 -m zipfile -e "$folder/$file" "$folder"
    chmod +x "$folder/apache-artemis-$ARTEMIS/bin/artemis"
    mv "$folder/apache-artemis-$ARTEMIS" "$1"
fi
if [ ! -e "$1/qpid-broker/$BROKER_J" ]; then
    file=apache-qpid-broker-j-$BROKER_J-bin.tar.gz
    from_maven "org.apache.qpid:apache-qpid-broker-j:$BROKER_J:tar.gz:bin" "$file" $BROKER_J_SHA256
    mkdir -p "$1/qpid-broker"
    tar -C "$folder" -xzf "$folder/$file"
    mv "$folder/qpid-broker/$BROKER_J" "$1/qpid-broker"
fi
"$(dirname "$0")/fetch_rabbitmq.sh" "$1/rabbitmq"
