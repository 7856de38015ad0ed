-- The number is compared byte by byte. In MySQL, its column needs COLLATE utf8mb4_bin for that.
CREATE TABLE orders (
	id       bigserial PRIMARY KEY,
	number   text      NOT NULL UNIQUE,
	customer text      NOT NULL
);
