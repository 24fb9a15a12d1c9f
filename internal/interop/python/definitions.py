"""Prints what the SDK would send for some definitions of templates: an object of
their names. The argument is the directory that they copy from."""

import contextlib
import json
import sys

from e2b import Template, wait_for_file, wait_for_port, wait_for_process, wait_for_timeout, wait_for_url

CONTEXT = sys.argv[1]


def start():
    return Template(file_context_path=CONTEXT, file_ignore_patterns=["top/hidden.txt"])


DEFINITIONS = {
    "steps": lambda: start()
    .from_base_image()
    .run_cmd("echo one")
    .run_cmd(["echo two", "echo three"], user="root")
    .set_workdir("/srv/app")
    .set_user("root")
    .set_envs({"A": "1", "B": "two $A"})
    .remove("/tmp/a b", recursive=True, force=True)
    .remove("/tmp/c", user="root")
    .rename("/tmp/d", "/tmp/e", force=True)
    .make_dir("/srv/data", mode=0o750, user="root")
    .make_dir("/srv/more")
    .make_symlink("/srv/data", "/srv/link", force=True)
    .pip_install(["requests", "numpy==2.*"])
    .pip_install([], g=False)
    .npm_install(["lodash"], g=True)
    .npm_install(["eslint"], dev=True)
    .npm_install()
    .bun_install(["tsx"], dev=True)
    .apt_install(["jq", "curl"], no_install_recommends=True)
    .git_clone("https://example.com/a.git", "/srv/a", branch="main", depth=1)
    .skip_cache()
    .run_cmd("echo last")
    .set_start_cmd("python3 -m http.server 8000", wait_for_port(8000)),
    "url": lambda: start()
    .from_image("debian:stable", username="me", password="word")
    .set_ready_cmd(wait_for_url("http://localhost:1/?a=b", 204)),
    "process": lambda: start().from_template("other:v1").set_ready_cmd(wait_for_process("sleep")),
    "file": lambda: start()
    .from_aws_registry("one.two/image", access_key_id="id", secret_access_key="key", region="eu")
    .set_ready_cmd(wait_for_file("/tmp/x y")),
    "timeout": lambda: start()
    .from_gcp_registry("gcr.io/image", service_account_json="account.json")
    .set_ready_cmd(wait_for_timeout(2500)),
    "files": lambda: start()
    .from_base_image()
    .copy("a.txt", "/app/")
    .copy("top/*.txt", "/app/", user="user:user", mode=0o644)
    .copy("**/*.py", "/app/py")
    .copy("link", "/app/link")
    .copy("link", "/app/followed", resolve_symlinks=True)
    .copy("run", "/app/run", mode=0o755, force_upload=True, gzip=False),
    "directories": lambda: start().from_base_image().copy("top", "/app").copy(".", "/all"),
    "dockerfile": lambda: start().from_dockerfile(
        "FROM e2bdev/base\nEXPOSE 80\nRUN echo hello && \\\necho again\nCOPY a.txt run /app/\n"
        "COPY --chown=user:user top/one.txt /app/\nENV A=1\nARG B=2\nWORKDIR /app\nUSER root\nCMD python3 app.py\n"
    ),
    # Only the newest SDK reads the rest as Docker does.
    "documents": lambda: start().from_dockerfile(
        'FROM e2bdev/base AS only\nENV A="one two" B=$A\nRUN ["echo", "a b"]\n'
        "RUN <<EOF\necho one\necho two\nEOF\n"
        "RUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF\n"
        "RUN cat <<-EOF > /tmp/x\n\ttext\n\tEOF\n"
        "COPY <<EOF /srv/\nhome is $HOME, costs 5\\$ `date`\nEOF\n"
        "COPY --chown=root --chmod=640 <<'EOF' /srv/plain\n$HOME\nEOF\n"
        'COPY --chmod=755 ["run", "/srv/run"]\n'
        'ENTRYPOINT ["python3", "-m"]\nCMD ["http.server", "80 80"]\n'
    ),
}

printed = {}
with contextlib.redirect_stdout(sys.stderr):
    for name, definition in DEFINITIONS.items():
        try:
            printed[name] = json.loads(Template.to_json(definition()))
        except Exception as error:
            printed[name] = {"error": str(error)}
print(json.dumps(printed))
