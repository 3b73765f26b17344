// Package envelope adds an event's id, type, origin and time to its payload, as JSON, for producers and consumers
// alike. The envelope is optional: a message's body may be anything.
//
//	body, err := envelope.Marshal(envelope.Event[Paid]{ID: "1001", Type: "order.paid", Payload: paid})
//	message := producer.Message{ID: "1001", ContentType: envelope.ContentType, Body: body, ...}
//
//	event, err := envelope.Unmarshal[Paid](m.ID, m.ContentType, m.Body)
//	if err != nil {
//		return consumer.Reject(err) // the body stays unreadable
//	}
//
// The event's id is the message's id, so deduplication by either gives the same result. [MarshalCloudEvent] writes
// the same event as a CloudEvent in structured mode, and Unmarshal reads both forms, by their content type. A
// [Registry] holds a service's event types, and refuses unknown types, missing data and contradicting ids.
package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"time"
)

// The content types of the two forms.
const (
	ContentType           = "application/json"
	CloudEventContentType = "application/cloudevents+json"
)

// ErrInvalid is wrapped by every error about an invalid event: another delivery of the message cannot help.
var ErrInvalid = errors.New("invalid event")

// Event is a payload in its envelope. ID and Type must be given.
type Event[Payload any] struct {
	// ID is the message's id.
	ID string `json:"eventId"`
	// Type is the kind of event, such as order.paid, which defines the type of Payload.
	Type string `json:"eventType"`
	// AggregateType and AggregateID name the changed object, such as order and 1001. Unmarshal also reads a whole number
	// as AggregateID.
	AggregateType string `json:"aggregateType,omitempty"`
	AggregateID   string `json:"aggregateId,omitempty"`
	// OccurredAt is the time of the event, by the clock of its source.
	OccurredAt time.Time `json:"occurredAt,omitzero"`
	// TraceID is the id of the trace in which the event happened.
	TraceID string  `json:"traceId,omitempty"`
	Payload Payload `json:"payload"`
}

// cloudEvent is the structured mode of CloudEvents 1.0. The aggregate's type is the source and its id the subject.
type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Type            string          `json:"type"`
	Source          string          `json:"source"`
	Subject         string          `json:"subject,omitempty"`
	Time            time.Time       `json:"time,omitzero"`
	TraceID         string          `json:"traceid,omitempty"`
	DataContentType string          `json:"datacontenttype"`
	Data            json.RawMessage `json:"data"`
}

// Marshal writes an event in our own form, of ContentType.
func Marshal[Payload any](e Event[Payload]) ([]byte, error) {
	if err := writable(e); err != nil {
		return nil, err
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.ID, err)
	}
	return body, nil
}

// MarshalCloudEvent writes an event as a CloudEvent, of CloudEventContentType. AggregateType must be given: a
// CloudEvent needs a source.
func MarshalCloudEvent[Payload any](e Event[Payload]) ([]byte, error) {
	if err := writable(e); err != nil {
		return nil, err
	}
	if e.AggregateType == "" {
		return nil, fmt.Errorf("%w: %s has no AggregateType for its source", ErrInvalid, e.ID)
	}
	data, err := json.Marshal(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.ID, err)
	}
	return json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: e.ID, Type: e.Type, Source: e.AggregateType, Subject: e.AggregateID, Time: e.OccurredAt,
		TraceID: e.TraceID, DataContentType: ContentType, Data: data,
	})
}

// Unmarshal reads a message's event, in the form of its content type. The payload is required, in JSON; null is a
// payload only for a slice, a map, an interface or a type with its own decoder. For an event without a payload ask
// for struct{}. Every error wraps ErrInvalid: the message stays unreadable, or is another event than expected.
func Unmarshal[Payload any](messageID, contentType string, body []byte) (Event[Payload], error) {
	raw, err := read(messageID, contentType, body)
	if err != nil {
		return Event[Payload]{}, err
	}
	e, err := withPayload[Payload](raw)
	if err != nil {
		return Event[Payload]{}, fmt.Errorf("%w: %s: %w", ErrInvalid, messageID, err)
	}
	return e, nil
}

// read reads an event without its payload, and checks its id and type.
func read(messageID, contentType string, body []byte) (raw Event[json.RawMessage], err error) {
	if kind, _, _ := mime.ParseMediaType(contentType); kind == CloudEventContentType {
		raw, err = fromCloudEvent(body)
	} else {
		raw, err = fromJSON(body)
	}
	if err != nil {
		return raw, fmt.Errorf("%w: %s: %w", ErrInvalid, messageID, err)
	}
	return raw, check(messageID, raw.ID, raw.Type)
}

// fromJSON reads our own form. Other producers write aggregateId as a number.
func fromJSON(body []byte) (Event[json.RawMessage], error) {
	var e struct {
		Event[json.RawMessage]
		AggregateID json.RawMessage `json:"aggregateId"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return Event[json.RawMessage]{}, err
	}
	switch id := string(e.AggregateID); {
	case id == "" || id == "null":
	case wholeNumber(id):
		e.Event.AggregateID = id
	default:
		if err := json.Unmarshal(e.AggregateID, &e.Event.AggregateID); err != nil {
			return Event[json.RawMessage]{}, fmt.Errorf("aggregateId is neither a text nor a whole number: %s", id)
		}
	}
	return e.Event, nil
}

// TypeOf reads only the type of an event, to choose the type of the payload. The result is empty for an invalid
// event.
func TypeOf(contentType string, body []byte) string {
	e, err := Unmarshal[struct{}]("", contentType, body)
	if err != nil {
		return ""
	}
	return e.Type
}

func fromCloudEvent(body []byte) (Event[json.RawMessage], error) {
	var c cloudEvent
	if err := json.Unmarshal(body, &c); err != nil {
		return Event[json.RawMessage]{}, err
	}
	if c.SpecVersion != "1.0" {
		return Event[json.RawMessage]{}, fmt.Errorf("specversion is %q; 1.0 is understood", c.SpecVersion)
	}
	return Event[json.RawMessage]{
		ID: c.ID, Type: c.Type, AggregateType: c.Source, AggregateID: c.Subject, OccurredAt: c.Time, TraceID: c.TraceID,
		Payload: c.Data,
	}, nil
}

// withPayload reads an event's payload. A missing payload is an error, not an empty payload.
func withPayload[Payload any](raw Event[json.RawMessage]) (Event[Payload], error) {
	e := Event[Payload]{
		ID: raw.ID, Type: raw.Type, AggregateType: raw.AggregateType, AggregateID: raw.AggregateID,
		OccurredAt: raw.OccurredAt, TraceID: raw.TraceID,
	}
	if _, none := any(e.Payload).(struct{}); none {
		return e, nil
	}
	if len(raw.Payload) == 0 {
		return e, errors.New("it has no payload in JSON")
	}
	if string(raw.Payload) == "null" && !nullable[Payload]() {
		return e, fmt.Errorf("its payload is null, and %v is wanted", reflect.TypeFor[Payload]())
	}
	return e, json.Unmarshal(raw.Payload, &e.Payload)
}

// nullable reports whether null in JSON is a payload of this type. For other types the decoder ignores null, as if
// the event held zero values.
func nullable[Payload any]() bool {
	switch reflect.TypeFor[Payload]().Kind() {
	case reflect.Slice, reflect.Map, reflect.Interface:
		return true
	}
	_, readsItself := any(new(Payload)).(json.Unmarshaler)
	return readsItself
}

// writable checks an event as Unmarshal does.
func writable[Payload any](e Event[Payload]) error {
	payload := reflect.ValueOf(e.Payload)
	if payload.Kind() == reflect.Pointer && payload.IsNil() && !nullable[Payload]() {
		return fmt.Errorf("%w: %q has a nil pointer for its payload; give one that points to something", ErrInvalid, e.ID)
	}
	return check(e.ID, e.ID, e.Type)
}

// check checks the required fields of an event. An empty messageID is not compared.
func check(messageID, id, kind string) error {
	switch {
	case id == "" || kind == "":
		return fmt.Errorf("%w: %q lacks its id or its type", ErrInvalid, messageID)
	case messageID != "" && id != messageID:
		return fmt.Errorf("%w: message %q holds event %q", ErrInvalid, messageID, id)
	}
	return nil
}
