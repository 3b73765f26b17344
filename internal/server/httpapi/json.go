package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/msghandler/msghandler/internal/server/guard"
)

// decodeJSON decodes a request in JSON. Items are counted before they are decoded, as guard.Decode does: an empty
// object is two bytes of text and more than a hundred in memory. A field that the request does not have is an error,
// because a mistyped name would otherwise be ignored.
func decodeJSON(data []byte, into proto.Message, limits guard.Limits) *guard.FieldError {
	if len(bytes.TrimSpace(data)) == 0 {
		return &guard.FieldError{Reason: "the request is empty: a request without fields is {}"}
	}
	if bytes.HasPrefix(data, []byte("\uFEFF")) {
		return &guard.FieldError{Reason: "the request begins with a byte order mark (EF BB BF): send UTF-8 without it"}
	}
	descriptor := into.ProtoReflect().Descriptor()
	w := walk{data: data, count: guard.NewItemCount(limits), target: len(data)}
	if w.whole(descriptor); w.refused != nil {
		return w.refused
	}
	err := protojson.Unmarshal(data, into)
	if err == nil {
		return nil
	}
	proto.Reset(into)
	return unreadable(data, descriptor, err)
}

// stopped is how protojson says why it stopped, and where, unless the text has ended. The text may change with the
// library; the worst that comes of it is an error that names no field.
var stopped = regexp.MustCompile(`^proto:.(?:syntax error )?(?:\(line (\d+):(\d+)\): )?(.*)`)

// fixedWords are the words of protojson before a quote of the request. An error has no quote, which might be of a body.
var fixedWords = regexp.MustCompile(
	`^(?:invalid value for (\w+) (?:field \w+|key)|unexpected token|duplicate map key|invalid value|[^"']*)`)

// lineBreak begins the words of protojson about a line break inside a text, as base64 has after 76 characters.
const lineBreak = `invalid character '\n' in string`

// withoutQuote is why protojson stopped, without what it quotes of the request.
func withoutQuote(reason string) string {
	if strings.HasPrefix(reason, lineBreak) {
		return `a text has a line break: write \n for it, and base64 in one line (base64 -w0)`
	}
	found := fixedWords.FindStringSubmatch(reason)
	if found[1] == "bytes" {
		return "bytes must be base64 in JSON"
	}
	return strings.TrimSpace(found[0])
}

// unreadable names the field at which protojson stopped.
func unreadable(data []byte, descriptor protoreflect.MessageDescriptor, err error) *guard.FieldError {
	const maxReason = 200
	w := walk{data: data, target: len(data)}
	reason := "cannot be read from JSON"
	if found := stopped.FindStringSubmatch(err.Error()); found != nil {
		if found[1] != "" {
			line, _ := strconv.Atoi(found[1])
			column, _ := strconv.Atoi(found[2])
			w.target = offset(data, line, column)
			reason += fmt.Sprintf(" (line %d, column %d)", line, column)
		}
		reason += fmt.Sprintf(": %.*s", maxReason, withoutQuote(found[3]))
	}
	if w.whole(descriptor); w.located == "" {
		reason = "the request " + reason
	}
	return &guard.FieldError{Field: w.located, Reason: reason}
}

// offset is where a line and a column begin. Columns count characters.
func offset(data []byte, line, column int) (at int) {
	for ; line > 1; line-- {
		at += bytes.IndexByte(data[at:], '\n') + 1
	}
	for ; column > 1 && at < len(data); column-- {
		_, size := utf8.DecodeRune(data[at:])
		at += size
	}
	return at
}

// walk goes through a JSON text beside the description of its message, in the order in which protojson decodes it. A
// walk ends where the text is malformed or its shape is another than the description's: protojson comes no further
// either.
type walk struct {
	data []byte
	at   int
	path []step
	// count is nil in a walk that only locates.
	count   *guard.ItemCount
	refused *guard.FieldError
	// located is the path of the value at the offset target, or of the value in which the walk ended.
	target  int
	located string
}

// step is a field on the way to a value, or an item of the field.
type step struct {
	field string
	item  int // negative: not an item
}

// whole walks through the whole text.
func (w *walk) whole(request protoreflect.MessageDescriptor) {
	if w.space(); w.peek() == '{' {
		w.object(request)
	}
}

// name writes the path as messages[3].id.
func (w *walk) name() string {
	var text []byte
	for i, s := range w.path {
		if i > 0 {
			text = append(text, '.')
		}
		text = append(text, s.field...)
		if s.item >= 0 {
			text = fmt.Appendf(text, "[%d]", s.item)
		}
	}
	return string(text)
}

func (w *walk) refuse(format string, args ...any) bool {
	w.refused = &guard.FieldError{Field: w.name(), Reason: fmt.Sprintf(format, args...)}
	return false
}

func (w *walk) peek() byte {
	if w.at < len(w.data) {
		return w.data[w.at]
	}
	return 0
}

func (w *walk) space() {
	for w.at < len(w.data) && isSpace(w.data[w.at]) {
		w.at++
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// takeByte goes past a byte, if the byte comes next.
func (w *walk) takeByte(b byte) bool {
	if w.space(); w.peek() != b {
		return false
	}
	w.at++
	return true
}

// eachMember walks through the members of an object, or the items of an array, up to the closing bracket.
func (w *walk) eachMember(closing byte, member func(i int) bool) bool {
	w.at++
	if w.takeByte(closing) {
		return true
	}
	for i := 0; ; i++ {
		if !member(i) {
			return false
		}
		if w.takeByte(closing) {
			return true
		}
		if !w.takeByte(',') {
			return false
		}
	}
}

// object walks through the fields of a message.
func (w *walk) object(message protoreflect.MessageDescriptor) bool {
	return w.eachMember('}', func(int) bool {
		key, ok := w.key()
		if !ok {
			return false
		}
		field := message.Fields().ByJSONName(key)
		if field == nil {
			field = message.Fields().ByTextName(key)
		}
		name := key
		if field != nil {
			name = string(field.Name())
		}
		w.path = append(w.path, step{name, -1})
		if field == nil {
			return w.refuse("is no field of %s: look for a typing error, or for a newer version", message.Name())
		}
		if !w.takeByte(':') || !w.value(field) {
			return false
		}
		w.path = w.path[:len(w.path)-1]
		return true
	})
}

// key reads the name of a field.
func (w *walk) key() (string, bool) {
	if w.space(); w.peek() != '"' {
		return "", false
	}
	begin := w.at
	if !w.text() {
		return "", false
	}
	quoted := w.data[begin:w.at]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), true
	}
	var key string
	return key, json.Unmarshal(quoted, &key) == nil
}

// value walks through the value of a field.
func (w *walk) value(field protoreflect.FieldDescriptor) bool { return w.locating(w.inside, field) }

// item walks through an item of a list, or the value of an entry of a map.
func (w *walk) item(field protoreflect.FieldDescriptor) bool { return w.locating(w.single, field) }

// locating walks through a value, and locates the target in it, or the place where the walk ends early.
func (w *walk) locating(through func(protoreflect.FieldDescriptor) bool, field protoreflect.FieldDescriptor) bool {
	w.space()
	begin := w.at
	walked := through(field)
	if w.located == "" && w.refused == nil && (!walked || begin <= w.target && w.target < w.at) {
		w.located = w.name()
	}
	return walked
}

func (w *walk) inside(field protoreflect.FieldDescriptor) bool {
	switch b := w.peek(); {
	case b == '[' && field.IsList():
		return w.eachMember(']', func(i int) bool {
			w.path[len(w.path)-1].item = i
			if !w.add(field) || !w.item(field) {
				return false
			}
			w.path[len(w.path)-1].item = -1
			return true
		})
	case b == '{' && field.IsMap():
		return w.eachMember('}', func(int) bool {
			_, ok := w.key()
			return ok && w.add(field) && w.takeByte(':') && w.item(field.MapValue())
		})
	case field.IsList() || field.IsMap():
		return b == 'n' && w.scalar()
	}
	return w.single(field)
}

func (w *walk) single(field protoreflect.FieldDescriptor) bool {
	switch w.peek() {
	case '{':
		return field.Kind() == protoreflect.MessageKind && w.object(field.Message())
	case '"':
		return w.text()
	case '[':
		return false
	}
	return w.scalar()
}

// add counts an item.
func (w *walk) add(field protoreflect.FieldDescriptor) bool {
	if w.count != nil {
		within := ""
		if n := len(w.path); n > 1 {
			within = w.path[n-2].field
		}
		w.refused = w.count.Add(within, field, 1)
	}
	return w.refused == nil
}

// text goes past a string.
func (w *walk) text() bool {
	begin := w.at
	for w.at++; w.at < len(w.data); w.at++ {
		switch w.data[w.at] {
		case '\\':
			if w.at++; w.halfRune() {
				return w.refuse("must be valid UTF-8: half of a surrogate pair is none")
			}
		case '"':
			w.at++
			if !utf8.Valid(w.data[begin:w.at]) {
				return w.refuse("must be valid UTF-8")
			}
			return true
		}
	}
	w.at = len(w.data)
	return false
}

// halfRune goes past an escaped rune, and reports whether the rune is half of a surrogate pair. protojson takes such a
// text for one without end.
func (w *walk) halfRune() bool {
	first, ok := escapedUnit(w.data[w.at:])
	if !ok || !utf16.IsSurrogate(first) {
		return false
	}
	rest := w.data[w.at+escapeLen:]
	if len(rest) > 0 && rest[0] == '\\' {
		if second, ok := escapedUnit(rest[1:]); ok && utf16.DecodeRune(first, second) != utf8.RuneError {
			w.at += escapeLen + 1
			return false
		}
	}
	return true
}

// escapeLen is the length of an escape: a u and four hexadecimal digits.
const escapeLen = 5

// escapedUnit reads the unit of UTF-16 that an escape such as uD83D names.
func escapedUnit(escape []byte) (unit rune, ok bool) {
	if len(escape) < escapeLen || escape[0] != 'u' {
		return 0, false
	}
	value, err := strconv.ParseUint(string(escape[1:escapeLen]), 16, 16)
	return rune(value), err == nil
}

// scalar goes past a number, true, false or null.
func (w *walk) scalar() bool {
	begin := w.at
	for w.at < len(w.data) && !isSpace(w.data[w.at]) && strings.IndexByte(",]}", w.data[w.at]) < 0 {
		w.at++
	}
	return w.at > begin
}
