#!/bin/sh
# Fetches the client Qpid JMS with Maven: fetch_qpid_jms.sh FOLDER puts its jars into FOLDER.
set -eu
VERSION=2.6.1

[ -e "$1/qpid-jms-client-$VERSION.jar" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>oncewire</groupId><artifactId>login-client</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.qpid</groupId><artifactId>qpid-jms-client</artifactId><version>$VERSION</version></dependency>
  </dependencies>
</project>
END
mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$folder/jars"
mkdir -p "$1"
mv "$folder"/jars/*.jar "$1"
