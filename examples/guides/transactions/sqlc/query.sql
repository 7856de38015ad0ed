-- name: InsertOrder :exec
INSERT INTO orders (number, customer) VALUES ($1, $2);
