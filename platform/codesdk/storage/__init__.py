"""The database: schema, engines, and the writer through which every change goes."""
