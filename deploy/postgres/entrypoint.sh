#!/bin/sh
# Makes the cluster at the first start, then becomes the server. Understands what compose.yaml uses of the official
# image's contract: PGDATA, POSTGRES_DB, POSTGRES_PASSWORD_FILE, /docker-entrypoint-initdb.d/*.sql.
set -eu

if [ "${1:-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    # Made beside its place and renamed when it is whole: a first start that was interrupted begins again.
    new="$PGDATA.new"
    rm -rf "$new"
    initdb --pgdata="$new" --username=postgres --pwfile="$POSTGRES_PASSWORD_FILE" --encoding=UTF8 --locale=C.UTF-8 \
        --auth-local=peer --auth-host=scram-sha-256 >/dev/null
    echo 'host all all all scram-sha-256' >>"$new/pg_hba.conf"
    # Nobody but this script can connect while the roles are made.
    pg_ctl --pgdata="$new" --options="-c listen_addresses=''" --wait --silent --log="$new/first.log" start
    createdb --username=postgres "$POSTGRES_DB"
    for file in /docker-entrypoint-initdb.d/*.sql; do
        [ -e "$file" ] || continue
        psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --username=postgres --dbname="$POSTGRES_DB" --file="$file"
    done
    pg_ctl --pgdata="$new" --wait --silent --mode=fast stop
    rm "$new/first.log"
    rmdir "$PGDATA" 2>/dev/null || true
    mv "$new" "$PGDATA"
fi
if [ "${1:-}" = postgres ]; then
    shift
    set -- postgres -c listen_addresses='*' "$@"
fi
exec "$@"
