// Package schema has ent's schema of the orders.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/schema/field"
)

// An Order is a document with a number.
type Order struct{ ent.Schema }

// Fields of the Order.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.String("number").Unique().Immutable().
			SchemaType(map[string]string{dialect.MySQL: "varchar(100) COLLATE utf8mb4_bin"}), // compared byte by byte
		field.String("customer"),
	}
}
