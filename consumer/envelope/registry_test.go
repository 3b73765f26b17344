package envelope_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer/envelope"
)

type shipped struct {
	OrderID  int64  `json:"orderId"`
	OrderNo  string `json:"orderNo"`
	Pieces   int    `json:"pieces"`
	Remark   string `json:"remark,omitempty"`
	internal int
}

func registry() (*envelope.Registry, envelope.Type[shipped]) {
	r := &envelope.Registry{NumericAggregateIDs: true}
	return r, envelope.Register(r, envelope.Spec[shipped]{
		Type: "ORDER_SHIPPED", AggregateType: "ORDER",
		AggregateID: func(p shipped) string { return strconv.FormatInt(p.OrderID, 10) },
		Check: func(p shipped) error {
			if p.Pieces < 0 {
				return errors.New("fewer pieces than none")
			}
			return nil
		},
	})
}

func TestRegisteredEventIsWrittenAndRead(t *testing.T) {
	t.Parallel()
	r, kind := registry()
	at := time.Date(2026, 11, 25, 14, 0, 0, 0, time.UTC)
	body, err := kind.Marshal(envelope.Head{ID: "e-1", OccurredAt: at, TraceID: "t"}, shipped{1001, "S-1001", 0, "", 7})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"eventId":"e-1","eventType":"ORDER_SHIPPED","aggregateType":"ORDER","aggregateId":1001,` +
		`"occurredAt":"2026-11-25T14:00:00Z","traceId":"t","payload":{"orderId":1001,"orderNo":"S-1001","pieces":0}}`
	if string(body) != want {
		t.Errorf("written %s\nwant    %s", body, want)
	}
	e, err := r.Decode("e-1", envelope.ContentType, body)
	if err != nil || e.Payload != (shipped{OrderID: 1001, OrderNo: "S-1001"}) || e.AggregateID != "1001" ||
		e.Type != kind.Name() || !e.OccurredAt.Equal(at) || e.TraceID != "t" {
		t.Errorf("read %+v, %v", e, err)
	}
	cloud, err := envelope.MarshalCloudEvent(kind.Event(envelope.Head{ID: "e-1"}, shipped{1001, "S-1001", 1, "", 0}))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := r.Decode("e-1", envelope.CloudEventContentType, cloud); err != nil || e.AggregateID != "1001" {
		t.Errorf("read of a CloudEvent %+v, %v", e, err)
	}
}

func TestUnrecoverableEventIsInvalid(t *testing.T) {
	t.Parallel()
	r, _ := registry()
	const good = `{"eventId":"1","eventType":"ORDER_SHIPPED","aggregateType":"ORDER","aggregateId":7,` +
		`"payload":{"orderId":7,"orderNo":"S-7","pieces":2}}`
	if _, err := r.Decode("1", envelope.ContentType, []byte(good)); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(good, `"aggregateId":7`, `"aggregateId":"7"`, 1)
	if _, err := r.Decode("1", envelope.ContentType, []byte(text)); err != nil {
		t.Errorf("an id as a text: %v", err)
	}
	for _, c := range []struct{ old, with, want string }{
		{`"ORDER_SHIPPED"`, `"ORDER_EATEN"`, "unknown event type"},
		{`"ORDER_SHIPPED"`, `""`, "lacks its id or its type"},
		{`"eventId":"1"`, `"eventId":"2"`, `holds event "2"`},
		{`"aggregateId":7`, `"aggregateId":8`, `about ORDER "8", and its payload about ORDER "7"`},
		{`"aggregateId":7,`, ``, `about ORDER ""`},
		{`"aggregateId":7`, `"aggregateId":7.0`, "neither a text nor a whole number"},
		{`"aggregateId":7`, `"aggregateId":[7]`, "neither a text nor a whole number"},
		{`"aggregateType":"ORDER"`, `"aggregateType":"SHOE"`, "about SHOE"},
		{`"orderNo":"S-7",`, ``, "lacks orderNo"},
		{`"orderNo":"S-7"`, `"orderNo":null`, "lacks orderNo"},
		{`"orderId":7`, `"orderID":7`, "lacks orderId"},
		{`"pieces":2`, `"pieces":"two"`, "cannot unmarshal"},
		{`"pieces":2`, `"pieces":-1`, "fewer pieces"},
		{`{"orderId":7,"orderNo":"S-7","pieces":2}`, `null`, "its payload is missing"},
		{`{"orderId":7,"orderNo":"S-7","pieces":2}`, `"text"`, "its payload is missing"},
		{`}}`, ``, "unexpected end"},
	} {
		_, err := r.Decode("1", envelope.ContentType, []byte(strings.Replace(good, c.old, c.with, 1)))
		if !errors.Is(err, envelope.ErrInvalid) || !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, envelope.ErrUnknownType) != strings.Contains(c.want, "unknown") {
			t.Errorf("%s for %s: %v, want %q", c.with, c.old, err, c.want)
		}
	}
}

func TestUnreadableEventIsNeverWritten(t *testing.T) {
	t.Parallel()
	r, kind := registry()
	if _, err := kind.Marshal(envelope.Head{ID: "1"}, shipped{Pieces: -1}); !errors.Is(err, envelope.ErrInvalid) {
		t.Errorf("a payload that Check refuses: %v", err)
	}
	if _, err := kind.Marshal(envelope.Head{}, shipped{}); !errors.Is(err, envelope.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
	named := envelope.Register(r, envelope.Spec[struct{}]{
		Type: "NAMED", AggregateType: "ORDER", AggregateID: func(struct{}) string { return "S-1" },
	})
	if _, err := named.Marshal(envelope.Head{ID: "1"}, struct{}{}); !errors.Is(err, envelope.ErrInvalid) {
		t.Errorf("an id that is no number: %v", err)
	}
	r.NumericAggregateIDs = false
	body, err := named.Marshal(envelope.Head{ID: "1"}, struct{}{})
	var written map[string]any
	if err != nil || json.Unmarshal(body, &written) != nil || written["aggregateId"] != "S-1" {
		t.Errorf("%s, %v", body, err)
	}
}

type parcel struct {
	Weight int `json:"weight"`
}

type sender struct {
	Shop int `json:"shop"`
}

// The fields of an embedded struct are the payload's own, unless the struct has a name in JSON.
func TestEmbeddedFieldsAreRequired(t *testing.T) {
	t.Parallel()
	type packed struct {
		parcel
		Sender sender `json:"from"`
		Order  int64  `json:"order"`
	}
	type labelled struct {
		sender `json:"from"`
		Order  int64 `json:"order"`
	}
	r, _ := registry()
	embedded := envelope.Register(r, envelope.Spec[packed]{
		Type: "PACKED", AggregateType: "ORDER", AggregateID: func(p packed) string { return fmt.Sprint(p.Order) },
	})
	body, err := embedded.Marshal(envelope.Head{ID: "1"}, packed{Order: 7})
	if err != nil || !strings.Contains(string(body), `"weight":0`) {
		t.Fatalf("%s, %v", body, err)
	}
	light := strings.Replace(string(body), `"weight":0,`, "", 1)
	_, err = r.Decode("1", envelope.ContentType, []byte(light))
	if err == nil || !strings.Contains(err.Error(), "lacks weight") {
		t.Errorf("without an embedded field: %v", err)
	}
	named := envelope.Register(r, envelope.Spec[labelled]{
		Type: "LABELLED", AggregateType: "ORDER", AggregateID: func(p labelled) string { return fmt.Sprint(p.Order) },
	})
	if body, err := named.Marshal(envelope.Head{ID: "1"}, labelled{Order: 7}); err != nil {
		t.Errorf("%s, %v", body, err)
	}
}

func TestRegistryRefusesMistakesOfTheProgram(t *testing.T) {
	t.Parallel()
	r, _ := registry()
	id := func(shipped) string { return "" }
	for name, spec := range map[string]envelope.Spec[shipped]{
		"registered twice":       {Type: "ORDER_SHIPPED", AggregateType: "ORDER", AggregateID: id},
		"lacks its Type":         {AggregateType: "ORDER", AggregateID: id},
		"lacks its Type, Aggreg": {Type: "A", AggregateType: "ORDER"},
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, name) {
					t.Errorf("%s: %q", name, said)
				}
			}()
			envelope.Register(r, spec)
		}()
	}
}
