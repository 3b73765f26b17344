package cli

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// record is a message in --output json. The names of its fields are part of the product.
type record struct {
	Producer        string            `json:"producer"`
	ID              string            `json:"id"`
	State           string            `json:"state"`
	Broker          string            `json:"broker,omitempty"`
	Exchange        string            `json:"exchange"`
	RoutingKey      string            `json:"routing_key"`
	ContentType     string            `json:"content_type,omitempty"`
	Headers         map[string]string `json:"headers,omitempty"`
	OrderingKey     string            `json:"ordering_key,omitempty"`
	HeldBy          string            `json:"held_by,omitempty"`
	Delay           string            `json:"delay,omitempty"`
	CallbackTarget  string            `json:"callback_target,omitempty"`
	MarkerStore     string            `json:"marker_store,omitempty"`
	CreatedAt       *time.Time        `json:"created_at,omitempty"`
	UpdatedAt       *time.Time        `json:"updated_at,omitempty"`
	DueAt           *time.Time        `json:"due_at,omitempty"`
	ConfirmAttempts int32             `json:"confirm_attempts"`
	PublishAttempts int32             `json:"publish_attempts"`
	DeleteAttempts  int32             `json:"delete_attempts,omitempty"`
	LastError       string            `json:"last_error,omitempty"`
	LastErrorAt     *time.Time        `json:"last_error_at,omitempty"`
	Parked          bool              `json:"parked,omitempty"`
	LeaseOwner      string            `json:"lease_owner,omitempty"`
	LeaseUntil      *time.Time        `json:"lease_until,omitempty"`
	Events          []event           `json:"events,omitempty"`
	// Body holds a body of text, BodyBase64 every other body.
	Body       string `json:"body,omitempty"`
	BodyBase64 string `json:"body_base64,omitempty"`
}

func stateName(s msghandlerv1.State) string {
	return halfmsg.State(s).String() //nolint:gosec // the values are the same
}

func newRecord(r *adminv1.MessageRecord) record {
	m := r.GetMessage()
	out := record{
		Producer: r.GetProducer(), ID: m.GetId(), State: stateName(r.GetState()), Broker: m.GetBroker(),
		Exchange: m.GetExchange(), OrderingKey: m.GetOrderingKey(), HeldBy: r.GetHeldBy(),
		RoutingKey: m.GetRoutingKey(), ContentType: m.GetContentType(), Headers: m.GetHeaders(),
		CallbackTarget: r.GetCallbackTarget(), MarkerStore: r.GetMarkerStore(),
		CreatedAt: moment(r.GetCreateTime()), UpdatedAt: moment(r.GetUpdateTime()),
		DueAt: moment(r.GetDueTime()), ConfirmAttempts: r.GetConfirmAttempts(), PublishAttempts: r.GetPublishAttempts(),
		DeleteAttempts: r.GetDeleteAttempts(), LastError: r.GetLastError(), LastErrorAt: moment(r.GetLastErrorTime()),
		Parked: r.GetParked(), LeaseOwner: r.GetLeaseOwner(), LeaseUntil: moment(r.GetLeaseEndTime()),
		Events: newEvents(r.GetEvents()),
	}
	if d := m.GetDelay().AsDuration(); d > 0 {
		out.Delay = d.String()
	}
	out.Body, out.BodyBase64 = documentBody(m.GetBody())
	return out
}

// documentBody is a body in a document: as it is where it is text, and otherwise in base64.
func documentBody(body []byte) (text, inBase64 string) {
	if utf8.Valid(body) {
		return string(body), ""
	}
	return "", base64.StdEncoding.EncodeToString(body)
}

func (r *record) name() string { return r.Producer + "/" + r.ID }

// final says whether only a trace of the message is left.
func (r *record) final() bool {
	state, err := halfmsg.ParseState(r.State)
	return err == nil && state.Final()
}

// describe gives the message as lines of name and value, for people.
func describe(m *adminv1.MessageRecord, now time.Time) [][]string {
	r := newRecord(m)
	lines := [][]string{{"message", r.Producer + "/" + r.ID}, {"state", r.State}}
	if r.final() {
		return append(lines, []string{"since", ageOf(m.GetUpdateTime(), now)},
			[]string{"kept", "only the receipt, for done.retention"})
	}
	add := func(name, value string) {
		if value != "" && value != "-" {
			lines = append(lines, []string{name, value})
		}
	}
	stripped := r.State == halfmsg.Acknowledged.String()
	if stripped {
		add("kept", "what it takes to delete its marker; the broker has the message")
	} else {
		add("broker", r.Broker)
		lines = append(lines, []string{"exchange", cmp.Or(r.Exchange, "(the default exchange)")},
			[]string{"routing key", r.RoutingKey})
	}
	add("content type", r.ContentType)
	add("ordering key", r.OrderingKey)
	if r.HeldBy != "" {
		add("held by", r.Producer+"/"+r.HeldBy+", the first unfinished message with this ordering key")
	}
	add("delay", delayOf(m.GetMessage()))
	add("callback target", r.CallbackTarget)
	add("marker store", r.MarkerStore)
	add("created", ageOf(m.GetCreateTime(), now))
	add("due", ageOf(m.GetDueTime(), now))
	if stripped {
		add("deletion attempts", strconv.Itoa(int(r.DeleteAttempts)))
	} else {
		add("confirm attempts", confirmAttempts(r))
		add("publish attempts", strconv.Itoa(int(r.PublishAttempts)))
	}
	add("last error", r.LastError)
	add("owner", r.LeaseOwner)
	add("lease ends", ageOf(m.GetLeaseEndTime(), now))
	for _, key := range slices.Sorted(maps.Keys(r.Headers)) {
		add("header "+key, r.Headers[key])
	}
	if !stripped {
		add("body", sizeOf(m.GetMessage()))
	}
	return lines
}

// delayOf is the delay of a message for people; empty for none.
func delayOf(m *msghandlerv1.Message) string {
	if d := m.GetDelay().AsDuration(); d > 0 {
		return operate.Duration(d)
	}
	return ""
}

// confirmAttempts says of an unanswered message why it waits: after a crash before the COMMIT nothing else does.
func confirmAttempts(r record) string {
	attempts := strconv.Itoa(int(r.ConfirmAttempts))
	if r.State == halfmsg.Pending.String() && r.ConfirmAttempts > 0 {
		attempts += ": UNKNOWN, as after a crash before the COMMIT; the last question decides"
	}
	return attempts
}

// sizeOf is the size of a body. A coordinator leaves out the headers and the body for those who may not see them.
func sizeOf(m *msghandlerv1.Message) string {
	if len(m.GetBody()) == 0 && len(m.GetHeaders()) == 0 {
		return "0 bytes, or not shown to you: it takes the role reader, and http.bodies"
	}
	return fmt.Sprintf("%d bytes", len(m.GetBody()))
}

// How much of a body show prints; --output json has the whole body.
const (
	previewText  = 1024
	previewBytes = 256
)

// printBody prints the beginning of a body under a table for people; documents hold the whole body.
func printBody(s *commandline.Session, output string, body []byte) error {
	if output == commandline.OutputJSON || output == commandline.OutputYAML {
		return nil
	}
	_, err := fmt.Fprint(s.Out, preview(body))
	return err
}

// preview returns the beginning of a body: text as lines, and other bodies as a hex dump.
func preview(body []byte) string {
	if len(body) == 0 {
		return ""
	}
	cut := body[:min(len(body), previewText)]
	for len(cut) < len(body) && len(cut) > 0 && !utf8.RuneStart(body[len(cut)]) {
		cut = cut[:len(cut)-1]
	}
	shown, what := len(cut), escape.Lines(string(cut))
	if !printable(cut) {
		shown = min(len(body), previewBytes)
		what = strings.TrimSuffix(hex.Dump(body[:shown]), "\n")
	}
	if shown < len(body) {
		what += fmt.Sprintf("\n... and %d bytes more; --output json has them all", len(body)-shown)
	}
	return what + "\n"
}

func printable(body []byte) bool {
	return utf8.Valid(body) && !strings.ContainsFunc(string(body), func(r rune) bool {
		return !unicode.IsPrint(r) && !unicode.IsSpace(r)
	})
}
