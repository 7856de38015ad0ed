CREATE TABLE orders (
	id       bigserial PRIMARY KEY,
	number   text      NOT NULL UNIQUE,
	customer text      NOT NULL
);
