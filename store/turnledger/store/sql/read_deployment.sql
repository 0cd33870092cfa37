-- Which deployment this schema is of: the one id that a restored backup keeps and that no other schema has.
SELECT deployment_id::text FROM deployment
