#!/bin/sh
# Stands in for the tools of public projects: it wants what a tool reads, and makes what it makes,
# with what it was called with.
set -e
tool=$(basename "$0")
call="$tool $*"

need() {
  for file; do
    [ -e "$file" ] || { echo "$call: $PWD has no $file" >&2; exit 1; }
  done
}

make() {
  for file; do
    mkdir -p "$(dirname "$file")"
    { echo "$call"; /bin/state; } >"$file"
  done
}

# free prints the first id of ordinary accounts that a file of accounts has not.
free() {
  id=1000
  while grep -q "^[^:]*:x:$id:" "$1"; do id=$((id + 1)); done
  echo "$id"
}

# account adds a user, or a group, with the name and the ids of the arguments.
account() {
  file=$1 uid= gid= name=
  shift
  while [ $# -gt 0 ]; do
    case $1 in
    --gid | -g) gid=$2; shift ;;
    --uid | -u) uid=$2; shift ;;
    -G) gid=$(sed -n "s/^$2:x:\([0-9]*\):.*/\1/p" /etc/group); shift ;;
    --shell) shift ;;
    -*) ;;
    *) name=$1 ;;
    esac
    shift
  done
  if [ "$file" = /etc/passwd ]; then
    uid=${uid:-$(free /etc/passwd)}
    [ -n "$gid" ] || { gid=$uid; echo "$name:x:$gid:" >>/etc/group; }
    echo "$name:x:$uid:$gid::/home/$name:/bin/sh" >>/etc/passwd
  elif grep -q "^[^:]*:x:$gid:" /etc/group; then
    echo "$tool: GID '$gid' already exists" >&2
    exit 4
  else
    echo "$name:x:$gid:" >>/etc/group
  fi
}

case $call in
"apk add "* | "apt-get install "*) make /opt/packages ;;
"apt-get update") make /var/lib/apt/lists/all ;;
"addgroup "* | "groupadd "*) account /etc/group "$@" ;;
"adduser "* | "useradd "*) account /etc/passwd "$@" ;;
"bun install "*) need package.json bun.lock; make node_modules/one/index.js ;;
"bundle install") need Gemfile Gemfile.lock; make "$BUNDLE_PATH/ruby/3.4.0/gems/rails/rails.rb" "$BUNDLE_PATH/ruby/3.4.0/cache/rails.gem" ;;
"bundle exec rails assets:precompile") need Gemfile db/schema.rb; make public/assets/app.css tmp/cache/one ;;
"cargo build "*) need src/main.rs target/release/deps/one; make target/release/app ;;
"cargo chef cook "*) need recipe.json; make target/release/deps/one ;;
"cargo chef prepare "*) need Cargo.toml src/main.rs; make recipe.json ;;
"cmake -S /src -B /build") need /src/CMakeLists.txt /src/include/a.h /src/src/a.cc; make /build/CMakeCache.txt ;;
"cmake --build /build") need /build/CMakeCache.txt; make /build/tool ;;
"composer install "*) need composer.json; make vendor/autoload.php ;;
"corepack enable") make "$PNPM_HOME/bin/one" ;;
"cpanm --installdeps /tmp") need /tmp/cpanfile; make /opt/perl/one.pm ;;
"deno cache main.ts") need main.ts; make /tmp/deno/main.js ;;
"dotnet publish -c release -o /out "*) need app/app.csproj app/obj/one; make /out/app.dll ;;
"dotnet restore") need app.sln app/app.csproj; make app/obj/one ;;
"go build "*" -o /bin/server ./cmd/server") need cmd/server/main.go; make /bin/server ;;
"go mod download -x") need go.mod go.sum; make /opt/modules ;;
"jar -xf ../"*.jar) need "$2"; make BOOT-INF/lib/one.jar META-INF/MANIFEST.MF ;;
"mamba env update -n base -f "*) need "$6"; make /opt/environment ;;
"mix deps.get --only prod") need mix.exs mix.lock; make deps/one/mix.exs ;;
"mix release") need config/config.exs config/prod.exs deps/one/mix.exs; make _build/prod/rel/app/bin/server ;;
"mvn install -DskipTests") need pom.xml src/App.java .mvn/wrapper.properties; make target/app.jar ;;
"npm ci") need package.json; make node_modules/one/index.js ;;
"npm run build") need package.json node_modules/one/index.js; make public/robots.txt .next/standalone/server.js .next/static/app.js dist/index.html ;;
"pip install "*" -r "*) need "${call##* }"; make /opt/site-packages/one.py ;;
"pnpm deploy --filter=api --prod /prod/api") need packages/api/package.json node_modules/built; make /prod/api/index.js ;;
"pnpm install --frozen-lockfile") need package.json packages/api/package.json; make node_modules/one/index.js ;;
"pnpm run -r build") need node_modules/one/index.js; make node_modules/built ;;
"python manage.py collectstatic --noinput") need manage.py; make static/app.css ;;
"uv sync --frozen --no-install-project") need pyproject.toml uv.lock; make .venv/bin/uvicorn ;;
*) echo "$call: a tool that no project should call so" >&2; exit 1 ;;
esac
