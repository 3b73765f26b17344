package guard

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// FieldError says that a field makes a request undecodable, or that the field has too many items.
type FieldError struct {
	// Field is the path of the field, as in messages[3].id; empty where the request is no protobuf message.
	Field string
	// Reason goes on from the field's name.
	Reason string
}

// Error names the field.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + " " + e.Reason
}

// Decode decodes a request. Items are counted before they are decoded: an empty item is two bytes on the wire and more
// than a hundred in memory, so a request within the size limit could take gigabytes before a handler counted its items.
func Decode(data []byte, into proto.Message, limits Limits) *FieldError {
	descriptor := into.ProtoReflect().Descriptor()
	if err := countItems(data, descriptor, limits); err != nil {
		return err
	}
	if err := proto.Unmarshal(data, into); err == nil {
		return nil
	}
	if path := invalidText(data, descriptor, ""); path != "" {
		return &FieldError{path, "must be valid UTF-8"}
	}
	return &FieldError{"", "the request cannot be read: it is not what " + string(descriptor.FullName()) + " says"}
}

// nested is how many headers the messages of one request may hold in all: twice what a full batch needs, so that a
// message with too many headers is still judged alone.
func (l Limits) nested() int { return 2 * l.Items * l.Headers }

// ItemCount counts the items of one request before they are decoded.
type ItemCount struct {
	limits Limits
	items  map[protoreflect.FieldDescriptor]int
	nested int
}

// NewItemCount returns a count without items.
func NewItemCount(limits Limits) *ItemCount {
	return &ItemCount{limits, map[protoreflect.FieldDescriptor]int{}, 0}
}

// Add counts n items of a field of the request itself, or of the message in the field within. Add refuses a request
// with more items than any request may hold.
func (c *ItemCount) Add(within string, field protoreflect.FieldDescriptor, n int) *FieldError {
	if within != "" && field.IsMap() {
		if c.nested += n; c.nested > c.limits.nested() {
			return &FieldError{string(field.Name()), fmt.Sprintf(
				"are more than %d in all; send the messages in several calls, with at most %d each",
				c.limits.nested(), c.limits.Headers)}
		}
		return nil
	}
	if c.items[field] += n; c.items[field] > c.limits.Items {
		path := string(field.Name())
		if within != "" {
			path = within + "." + path
		}
		return &FieldError{path, fmt.Sprintf("are more than %d; send the rest in further calls", c.limits.Items)}
	}
	return nil
}

// countItems refuses an encoded request with more items than any request may hold.
func countItems(data []byte, request protoreflect.MessageDescriptor, limits Limits) (refused *FieldError) {
	count := NewItemCount(limits)
	eachItem(data, request, "", func(within string, field protoreflect.FieldDescriptor, n int) bool {
		refused = count.Add(within, field, n)
		return refused == nil
	})
	return refused
}

// eachItem calls see with each part of an encoded message that adds n items to a repeated field or a map, at any depth,
// until see returns false. The message is the request, or in the field within. An unreadable part is the end: a decoder
// comes no further.
func eachItem(
	data []byte, in protoreflect.MessageDescriptor, within string,
	see func(within string, field protoreflect.FieldDescriptor, n int) bool,
) (more bool) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return true
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return true
		}
		value := data[n : n+size]
		data = data[n+size:]
		field := in.Fields().ByNumber(number)
		if field == nil {
			continue
		}
		if field.Cardinality() == protoreflect.Repeated && !see(within, field, itemsIn(value, field, kind)) {
			return false
		}
		if field.Kind() != protoreflect.MessageKind || field.IsMap() || kind != protowire.BytesType {
			continue
		}
		if inner, _ := protowire.ConsumeBytes(value); !eachItem(inner, field.Message(), string(field.Name()), see) {
			return false
		}
	}
	return true
}

// itemsIn is how many items one value on the wire adds to a repeated field. Numbers may come packed, many in one value.
func itemsIn(value []byte, field protoreflect.FieldDescriptor, kind protowire.Type) int {
	if kind != protowire.BytesType || !field.IsPacked() {
		return 1
	}
	inner, _ := protowire.ConsumeBytes(value)
	ends := 0 // all packed numbers of the API are varints, whose last byte has no high bit
	for _, b := range inner {
		if b < 0x80 {
			ends++
		}
	}
	return ends
}

// invalidText finds the first text in an encoded message that is not UTF-8. Its path is written as in messages[3].id.
func invalidText(data []byte, descriptor protoreflect.MessageDescriptor, within string) string {
	counts := map[protowire.Number]int{}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ""
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return ""
		}
		value := data[n : n+size]
		data = data[n+size:]
		field := descriptor.Fields().ByNumber(number)
		if field == nil || kind != protowire.BytesType {
			continue
		}
		path := within + string(field.Name())
		if field.IsList() {
			path += fmt.Sprintf("[%d]", counts[number])
			counts[number]++
		}
		inner, _ := protowire.ConsumeBytes(value)
		if invalid := invalidField(inner, field, path); invalid != "" {
			return invalid
		}
	}
	return ""
}

func invalidField(inner []byte, field protoreflect.FieldDescriptor, path string) string {
	switch {
	case field.Kind() == protoreflect.StringKind && !utf8.Valid(inner):
		return path
	case field.IsMap() && invalidText(inner, field.Message(), "") != "":
		return path
	case field.Kind() == protoreflect.MessageKind && !field.IsMap():
		return invalidText(inner, field.Message(), path+".")
	}
	return ""
}
