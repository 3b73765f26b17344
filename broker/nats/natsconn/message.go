package natsconn

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

const (
	// maxHeaders is how many bytes of headers JetStream stores with a message, in NATS's own form.
	maxHeaders = 64<<10 - 1
	// maxSubject is far below the 4 KiB of a line of NATS's protocol: a longer line ends the whole connection.
	maxSubject = 1024
)

// Message is a message for a stream.
type Message struct {
	// Producer and ID are the name of the message. JetStream deduplicates by both within the stream's window.
	Producer, ID string
	// Stream must take the message, by the subject.
	Stream, Subject string
	ContentType     string
	Headers         map[string]string
	// Trace becomes the traceparent header, unless Headers has a traceparent.
	Trace string
	Body  []byte
	// Time becomes the timestamp header, unless zero.
	Time time.Time
	// Attempt is the number of the copy.
	Attempt int
	// Publication numbers a copy on purpose under a name that the stream may know; empty for the first publication.
	Publication string
}

// Check says why a message cannot be expressed in NATS, or must not be. Such a message would end the connection, or
// would arrive changed, or would be a command to the server.
func (m *Message) Check() error {
	switch {
	case m.Stream == "":
		return errors.New("the exchange is empty, and on JetStream the exchange names the stream")
	case strings.ContainsAny(m.Stream, ".*>/\\ \t\r\n\x00"):
		return fmt.Errorf("the exchange %q cannot be the name of a stream", m.Stream)
	}
	if err := checkSubject(m.Subject); err != nil {
		return err
	}
	size := len(m.ContentType) + len(m.Trace) + len(m.Producer)
	for key, value := range m.Headers {
		if err := checkHeader(key, value); err != nil {
			return err
		}
		size += len(key) + len(value) + len(": \r\n")
	}
	if size > maxHeaders {
		return fmt.Errorf("the headers have %d bytes, more than the %d that JetStream stores", size, maxHeaders)
	}
	return nil
}

// checkSubject refuses what is no subject of a message. Subjects that begin with $ or _ are the server's own: a message
// to $JS.API would be a command under the coordinator's permissions.
func checkSubject(subject string) error {
	switch {
	case subject == "":
		return errors.New("the routing key is empty, and on JetStream the routing key is the subject")
	case len(subject) > maxSubject:
		return fmt.Errorf("the routing key has %d bytes, more than the %d of a subject", len(subject), maxSubject)
	case strings.ContainsAny(subject, " \t\r\n\x00"):
		return fmt.Errorf("the routing key %q cannot be a subject: it has white space", subject)
	case subject[0] == '$' || subject[0] == '_':
		return fmt.Errorf("the routing key %q is not allowed: subjects that begin with $ or _ are the server's own", subject)
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" {
			return fmt.Errorf("the routing key %q cannot be a subject: a part is empty or a wildcard", subject)
		}
	}
	return nil
}

// checkHeader refuses headers that NATS would change on the way, or that JetStream would obey.
func checkHeader(key, value string) error {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] == ':' || key[i] >= 0x7f {
			return fmt.Errorf("the header %q has a name that NATS cannot carry: only visible ASCII without a colon", key)
		}
	}
	switch {
	case key == "":
		return errors.New("a header has no name")
	case len(key) >= 5 && strings.EqualFold(key[:5], "Nats-"):
		return fmt.Errorf("the header %q is not allowed: JetStream obeys headers that begin with Nats-", key)
	case strings.ContainsAny(value, "\r\n"), strings.Trim(value, " \t") != value:
		return fmt.Errorf("the header %q has a value that NATS would change: line breaks, or white space at its ends", key)
	}
	return nil
}

// NATS is the message in the form of the library.
func (m *Message) NATS() *nats.Msg {
	headers := make(nats.Header, len(m.Headers)+8)
	values := make([]string, 0, len(m.Headers)+8)
	set := func(key, value string) {
		values = append(values, value)
		headers[key] = values[len(values)-1 : len(values) : len(values)]
	}
	if m.ContentType != "" {
		set(publish.HeaderContentType, m.ContentType)
	}
	if m.Trace != "" {
		set(publish.HeaderTrace, m.Trace)
	}
	for key, value := range m.Headers {
		set(key, value)
	}
	set(jetstream.MsgIDHeader, m.msgID())
	set(jetstream.ExpectedStreamHeader, m.Stream)
	set(publish.HeaderProducer, m.Producer)
	set(publish.HeaderID, m.ID)
	set(publish.HeaderAttempt, strconv.Itoa(m.Attempt))
	if !m.Time.IsZero() {
		set(publish.HeaderTimestamp, m.Time.UTC().Format(time.RFC3339Nano))
	}
	return &nats.Msg{Subject: m.Subject, Header: headers, Data: m.Body}
}

// msgID is what JetStream knows repeats by: the name, behind the number of a copy on purpose. Names of producers have
// no blank, so such an id is no other message's name.
func (m *Message) msgID() string {
	name := m.Producer + "/" + m.ID
	if m.Publication == "" {
		return name
	}
	return m.Publication + " " + name
}
