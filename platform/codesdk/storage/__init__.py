"""The database: schema, engines, migrations, and the writer that every change goes through."""
