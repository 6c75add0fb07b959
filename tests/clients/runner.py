"""A runner in Python (psycopg 3): the SQL contract of docs/runner.md, call by call.

Usage: python3 tests/clients/runner.py "host=FOLDER dbname=NAME" on a migrated database for tests, as a superuser `postgres`.
It makes a tenant, a gateway and the login py_runner there, and ends with "ok" if everything was as promised.
"""
import sys

import psycopg

where = sys.argv[1]


def code(f):
    try:
        f()
        return None
    except psycopg.Error as e:
        return e.sqlstate

admin = psycopg.connect(where + " user=postgres", autocommit=True)
x = admin.execute
x("drop role if exists py_runner"); x("create role py_runner login"); x("grant better_compute_runner to py_runner")
x("insert into tenants values (gen_random_uuid(), gen_random_uuid()::text, now())")
x("insert into kinds (digest,name,version,lane,timeout_ms,traits,manifest,component,status,created_at) values (sha256('k'),'runner.action','1','control',60000,'{}','{}','','active',now()) on conflict do nothing")
n = x("insert into nodes (id,tenant_id,name,role,created_at,runner_slug) select gen_random_uuid(), id, 'g', 'gateway', now(), 'py' from tenants limit 1 returning id").fetchone()[0]
x("insert into node_sequences (node_id) values (%s)", (n,)); x("insert into runner_logins values ('py_runner', %s)", (n,))
listen = psycopg.connect(where + " user=py_runner", autocommit=True); listen.execute("listen better_compute_runner")
i = x("insert into agent_commands (gateway_slug, action, payload) values ('py','add-agent', %s) returning id", ('{"b":1.0,"a":[]}',)).fetchone()[0]
assert [n.payload for n in listen.notifies(timeout=2, stop_after=1)] == ["py"]
r = psycopg.connect(where + " user=py_runner", autocommit=True)
row = r.execute("select id, action, payload, lease_token from lease_command(%s, %s)", ("py", 60)).fetchone()
assert row[:3] == (i, "add-agent", {"a": [], "b": 1}), row
t = row[3]
assert r.execute("select * from lease_command(%s, %s)", ("py", 60)).fetchall() == []
assert code(lambda: r.execute("select start_command(%s, %s)", (i, t + 1))) == "BC003"
assert code(lambda: r.execute("select lease_command('py', 0)")) == "BC002"
assert code(lambda: r.execute("select * from commands")) == "42501"
assert r.execute("select status from start_command(%s, %s)", (i, t)).fetchone() == ("running",)
assert r.execute("select status from renew_lease(%s, %s, %s)", (i, 90, t)).fetchone() == ("running",)
assert r.execute("select status, stdout, stdout_lossy from complete_command_bytes(%s, 0, %s, %s, %s)", (i, b"x\xff", b"", t)).fetchone() == ("done", "x\ufffd", True)
assert code(lambda: r.execute("select complete_command(%s, 0, %s, %s)", (i, "o", ""))) == "BC004"
j = x("insert into agent_commands (gateway_slug, action) values ('py','x') returning id").fetchone()[0]
r.execute("select lease_command('py', 60)")
assert r.execute("select status, error, exit_code from fail_command(%s, %s, %s, %s, %s)", (j, 2, "o", "e", "no")).fetchone() == ("failed", "no", 2)
print("ok")
