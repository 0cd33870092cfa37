"""Alembic's entry: it runs on the connection that `migrate` has locked and hands over."""

from alembic import context

from turnledger.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
