"""Measures one figure of procrastinate and prints one line of JSON.

    python main.py procrastinate FIGURE URL CLIENTS SECONDS COUNT

It is driven through its documented interface, and nothing is left of an earlier run: its database is emptied first.
"""

import asyncio
import json
import random
import sys
import time
from importlib.metadata import version

import procrastinate
import psycopg

BULK = 1000
# A queue that has not finished by then is stuck.
PATIENCE_S = 60
PAYLOAD = {"n": 1.5, "text": "a payload of the usual size"}

_, figure, url, clients, seconds, count = sys.argv[1:]
clients, seconds, count = int(clients), float(seconds), int(count)

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=url, min_size=clients + 2, max_size=clients + 2)
)
seen = 0
handed_over = None


@app.task(name="noop")
async def noop(**_):
    global seen
    seen += 1
    if handed_over is not None and not handed_over.done():
        handed_over.set_result(time.perf_counter())


async def empty():
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        await db.execute("drop schema public cascade")
        await db.execute("create schema public")


async def number(where):
    row = await app.connector.execute_query_one_async(f"select count(*) from procrastinate_jobs where {where}")
    return row["count"]


async def one():
    await noop.defer_async(**PAYLOAD)


async def many():
    await noop.batch_defer_async(*[PAYLOAD] * BULK)


def work():
    return asyncio.create_task(
        app.run_worker_async(concurrency=50, install_signal_handlers=False, fetch_job_polling_interval=1, wait=True)
    )


async def until_over(what):
    over = time.perf_counter() + seconds

    async def client():
        ops = 0
        while time.perf_counter() < over:
            await what()
            ops += 1
        return ops

    return sum(await asyncio.gather(*(client() for _ in range(clients))))


async def all_done(wanted):
    """Until nothing is open any more; the database is asked only after the worker has seen all."""
    patience = time.perf_counter() + PATIENCE_S
    while not (seen >= wanted and await number("status in ('todo', 'doing')") == 0):
        if time.perf_counter() > patience:
            left = await number("status in ('todo', 'doing')")
            raise SystemExit("the worker never started" if seen == 0 else f"stuck with {left} jobs open")
        await asyncio.sleep(0.002)


async def idle():
    global handed_over
    worker = work()
    await asyncio.sleep(0.5)
    ms = []
    for _ in range(count):
        await asyncio.sleep(0.005 + random.random() * 0.01)
        handed_over = asyncio.get_running_loop().create_future()
        started = time.perf_counter()
        await one()
        ms.append((await asyncio.wait_for(handed_over, PATIENCE_S) - started) * 1000)
    worker.cancel()
    return {"ms": ms}


async def measure():
    if figure == "idle":
        return await idle()
    worker = None
    if figure == "drain":
        for _ in range(0, count, BULK):
            await many()
    started = time.perf_counter()
    if figure == "enqueue":
        ops = await until_over(one)
    elif figure == "bulk":
        ops = await until_over(many) * BULK
    elif figure == "drain":
        worker, ops = work(), count
        await all_done(ops)
    else:
        worker = work()
        ops = await until_over(one)
        await all_done(ops)
    answer = {"ops": ops, "seconds": time.perf_counter() - started}
    if worker is not None:
        answer["locked"] = await number("status = 'doing'")
        worker.cancel()
    return answer


async def main():
    await empty()
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        print(json.dumps({"version": version("procrastinate"), **await measure()}), flush=True)


asyncio.run(main())
