-- Runs once, when the database is made: the service has a role with rights on its own database only.
-- The superuser then has no password, so it can log in from inside the container alone.
\getenv password POSTGRES_PASSWORD
CREATE ROLE saga LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'password';
CREATE DATABASE saga OWNER saga;
REVOKE CONNECT ON DATABASE postgres FROM PUBLIC;
ALTER ROLE CURRENT_USER PASSWORD NULL;
