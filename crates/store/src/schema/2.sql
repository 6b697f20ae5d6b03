-- How many calls of its process a waiter stands for; nothing: only for itself.
ALTER TABLE waiters ADD COLUMN crowd INTEGER;
