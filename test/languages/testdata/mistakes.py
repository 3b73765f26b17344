"""Businesses and effects that swallow an error of the database. Each must end in an exception: nothing has committed."""

import contextlib
import os

import psycopg2

import consumer
import http_producer


def swallow(tx):
    with contextlib.suppress(psycopg2.Error):
        tx.execute("SELECT 1 / 0")


def refused(what, run):
    try:
        run()
    except psycopg2.Error:
        return
    print(what, "is taken for committed")


def transaction():
    with http_producer.Markers(os.environ["DATABASE_URL"], "mistaken-orders").transaction() as tx:
        swallow(tx)


with contextlib.closing(psycopg2.connect(os.environ["DATABASE_URL"])) as db:
    inbox = consumer.Inbox(db, "mistaken-payments")
    refused("a business that swallows an error", transaction)
    refused("an effect that swallows an error", lambda: inbox.once("orders/1", "orders", swallow))
