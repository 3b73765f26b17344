-- Wakes the relays at the commit of an INSERT, once for each transaction. Without the trigger relays poll.
CREATE FUNCTION {table}_notify() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('{index}', ''); RETURN NULL; END $$;
CREATE TRIGGER {index}_notify AFTER INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {table}_notify();
