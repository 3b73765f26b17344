package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/submit"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	maxProducer = 100
	maxID       = 128
	// maxMarkerStore is how long the identity of a marker store may be: each record holds it.
	maxMarkerStore = 16
	// maxShort is the longest short string of AMQP 0-9-1; a longer one makes RabbitMQ close the whole connection.
	maxShort = 255
	// maxHeaders and maxHeaderBytes keep a message's properties far below the frame size of 128 KiB.
	maxHeaders     = 32
	maxHeaderBytes = 16 << 10
	// maxDelay and maxConfirmAfter: a larger value is most likely a wrong unit.
	maxDelay        = 30 * 24 * time.Hour
	maxConfirmAfter = 24 * time.Hour
	// maxViolations is how many violations of one message are answered. A status travels in trailers. Some clients take 8
	// KiB of trailers and report more as RESOURCE_EXHAUSTED, so a caller's text is cut as well.
	maxViolations = 8
)

// invalidError says which fields of a request are wrong, and why.
type invalidError struct {
	violations []*errdetails.BadRequest_FieldViolation
}

func invalid(field, why string) *invalidError {
	e := &invalidError{}
	e.add(field, why)
	return e
}

func (e *invalidError) add(field, why string) {
	e.violations = append(e.violations, &errdetails.BadRequest_FieldViolation{Field: field, Description: why})
}

// Error names all fields.
func (e *invalidError) Error() string {
	var text strings.Builder
	for i, v := range e.violations {
		if i > 0 {
			text.WriteString("; ")
		}
		if v.GetField() != "" {
			text.WriteString(v.GetField() + " ")
		}
		text.WriteString(v.GetDescription())
	}
	return text.String()
}

func (e *invalidError) status() *status.Status {
	st := status.New(codes.InvalidArgument, e.Error())
	if detailed, err := st.WithDetails(&errdetails.BadRequest{FieldViolations: e.violations}); err == nil {
		return detailed
	}
	return st
}

// check collects the violations in the part of a request that a path leads to.
type check struct {
	path  string
	found *invalidError
}

// enter prefixes the fields that are checked next with a path, until leave is called.
func (c *check) enter(path string) (leave func()) {
	before := c.path
	c.path += path
	return func() { c.path = before }
}

// fail notes that a field is wrong, up to maxViolations.
func (c *check) fail(field, format string, args ...any) {
	if c.found == nil {
		c.found = &invalidError{}
	}
	if len(c.found.violations) == maxViolations {
		return
	}
	c.found.add(c.path+field, fmt.Sprintf(format, args...))
}

// err is nil without violations.
func (c *check) err() error {
	if c.found == nil {
		return nil
	}
	return c.found
}

func (c *check) producer(field, s string) {
	switch {
	case s == "":
		c.fail(field, "must not be empty")
	case len(s) > maxProducer:
		c.fail(field, "is %d bytes long, more than %d", len(s), maxProducer)
	case !allBytes(s, "._-"):
		c.fail(field, "may hold only letters, digits and ._-")
	}
}

// ValidProducer reports whether a producer may have the name.
func ValidProducer(name string) bool {
	c := &check{}
	c.producer("producer", name)
	return c.found == nil
}

func (c *check) markerStore(field, s string) {
	switch {
	case len(s) > maxMarkerStore:
		c.fail(field, "is %d bytes long, more than %d", len(s), maxMarkerStore)
	case !allBytes(s, "._-"):
		c.fail(field, "may hold only letters, digits and ._-")
	}
}

func (c *check) id(field, s string) {
	switch {
	case s == "":
		c.fail(field, "must not be empty")
	case len(s) > maxID:
		c.fail(field, "is %d bytes long, more than %d", len(s), maxID)
	case !allBytes(s, "._:~-"):
		c.fail(field, "may hold only letters, digits and ._:~-")
	case !isAlphanumeric(s[0]):
		c.fail(field, "must begin with a letter or a digit")
	}
}

func (c *check) name(n halfmsg.Name) {
	c.producer("producer", n.Producer)
	c.id("id", n.ID)
}

// short checks a text that becomes a short string of AMQP.
func (c *check) short(field, s string) {
	switch {
	case len(s) > maxShort:
		c.fail(field, "is %d bytes long, more than %d", len(s), maxShort)
	case escape.Deceptive(s):
		c.fail(field, "must not hold control characters, nor invisible ones such as those that turn the direction of writing")
	}
}

// shortText checks a text that is only compared with stored texts.
func (c *check) shortText(field, s string) {
	if len(s) > maxShort {
		c.fail(field, "is %d bytes long, more than %d", len(s), maxShort)
	}
}

// duration checks an optional duration and returns it in whole milliseconds, rounded up.
func (c *check) duration(field string, d *durationpb.Duration, limit time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	if err := d.CheckValid(); err != nil {
		c.fail(field, "is not a valid duration")
		return 0
	}
	// AsDuration saturates, so an absurd value stays absurd.
	switch value := d.AsDuration(); {
	case value < 0:
		c.fail(field, "must not be negative")
	case value > limit:
		c.fail(field, "is %s, more than %s", value, limit)
	default:
		return (value + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return 0
}

// message checks one message of a request. maxBody bounds its body in bytes, brokers are those that it may name.
func (c *check) message(m *msghandlerv1.Message, maxBody int, brokers []string) {
	c.id("id", m.GetId())
	c.broker("broker", m.GetBroker(), brokers)
	c.short("exchange", m.GetExchange())
	// RabbitMQ compares case: AMQ.direct is an ordinary name, and may exist.
	if strings.HasPrefix(m.GetExchange(), "amq.") {
		c.fail("exchange", "must not begin with amq., which RabbitMQ keeps for itself")
	}
	c.short("routing_key", m.GetRoutingKey())
	if m.GetExchange() == "" && m.GetRoutingKey() == "" {
		c.fail("routing_key", "must not be empty with the default exchange: it is the queue's name there")
	}
	c.short("content_type", m.GetContentType())
	if len(m.GetBody()) > maxBody {
		c.fail("body", "is %d bytes long, more than %d", len(m.GetBody()), maxBody)
	}
	c.headers(m.GetHeaders())
	if m.GetOrderingKey() != "" {
		c.id("ordering_key", m.GetOrderingKey())
		if m.GetDelay() != nil {
			c.fail("delay", "must be empty with an ordering_key: the messages behind this one would wait as long")
		}
	}
	if n := m.GetEarlierCopies(); n > maxEarlierCopies {
		c.fail("earlier_copies", "is %d, more than %d", n, maxEarlierCopies)
	}
}

// maxEarlierCopies is more copies than a message that is handed over once a minute has in a year.
const maxEarlierCopies = 1_000_000

// CheckMessage says which fields of a message are wrong, by the rules of SendHalfMessage: for messages that come on
// another way.
func CheckMessage(m *msghandlerv1.Message, maxBody int, brokers []string) error {
	c := check{}
	c.message(m, maxBody, brokers)
	c.duration("delay", m.GetDelay(), maxDelay)
	return c.err()
}

// broker checks the name of a broker against the configured names.
func (c *check) broker(field, name string, known []string) {
	switch {
	case name == "" || slices.Contains(known, name):
	case len(known) == 0:
		c.fail(field, "is %.40q, and this coordinator has no broker but the default one: leave the field empty, or have "+
			"brokers.NAME.url set", name)
	default:
		c.fail(field, "is %.40q, which this coordinator does not know: name one of %s, or leave the field empty for the "+
			"default broker", name, strings.Join(known, ", "))
	}
}

func (c *check) headers(headers map[string]string) {
	if len(headers) > maxHeaders {
		c.fail("headers", "are %d, more than %d", len(headers), maxHeaders)
		return
	}
	size := 0
	for key, value := range headers {
		size += len(key) + len(value)
		c.header(key, value)
	}
	if size > maxHeaderBytes {
		c.fail("headers", "have %d bytes in all, more than %d", size, maxHeaderBytes)
	}
}

func (c *check) header(key, value string) {
	const field = "headers"
	switch {
	case key == "":
		c.fail(field, "must not have an empty name")
	case len(key) > maxShort:
		c.fail(field, "have a name of %d bytes, more than %d", len(key), maxShort)
	case escape.Deceptive(key):
		c.fail(field, "have a name with control characters or invisible ones")
	case isReserved(key):
		c.fail(field, "must not hold %.20q: CC, BCC and names that begin with x- or msghandler- are reserved", key)
	case strings.IndexByte(value, 0) >= 0:
		c.fail(field, "must not hold a NUL in %.20q", key)
	}
}

// count checks how many items a batch has.
func (c *check) count(field string, n int) {
	switch {
	case n == 0:
		c.fail(field, "must not be empty")
	case n > maxItems:
		c.fail(field, "are %d, more than %d; send the rest in further calls", n, maxItems)
	}
}

// wait checks how far a Submit waits.
func (c *check) wait(w msghandlerv1.Wait) submit.Wait {
	switch w {
	case msghandlerv1.Wait_WAIT_UNSPECIFIED:
	case msghandlerv1.Wait_WAIT_SENDABLE:
		return submit.UntilSendable
	case msghandlerv1.Wait_WAIT_DONE:
		return submit.UntilDone
	default:
		c.fail("wait", "is not a value of Wait: %d", int32(w))
	}
	return submit.NoWait
}

// isReserved reports whether RabbitMQ or msghandler gives a header a meaning of its own.
func isReserved(key string) bool {
	key = strings.ToLower(key)
	return strings.HasPrefix(key, "x-") || strings.HasPrefix(key, "msghandler-") || key == "cc" || key == "bcc"
}

func isAlphanumeric(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
}

// allBytes reports whether s holds only letters, digits and the bytes of others.
func allBytes(s, others string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return false
		}
	}
	return true
}
