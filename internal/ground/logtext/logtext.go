// Package logtext holds the log texts that people search for, in each language: for the consumer, the outbox and the
// coordinator.
package logtext

import (
	"context"
	"errors"
	"fmt"
)

// Language is the language of the texts. The empty Language is English.
type Language string

// The languages.
const (
	English Language = "en"
	Chinese Language = "zh"
)

// Check returns an error for a language without texts.
func (l Language) Check() error {
	if l != "" && l != English && l != Chinese {
		return fmt.Errorf("%q is no language of the log texts; use %q or %q", string(l), English, Chinese)
	}
	return nil
}

type languageKey struct{}

// With returns a context whose log lines are in a language.
func With(ctx context.Context, l Language) context.Context {
	return context.WithValue(ctx, languageKey{}, l)
}

// From returns the language that With has given to the context. Without With the language is English.
func From(ctx context.Context) Language {
	l, _ := ctx.Value(languageKey{}).(Language)
	return l
}

// Text is a text in all languages.
type Text struct{ english, chinese string }

// The texts.
var (
	AlreadyHandled  = Text{"event already handled, duplicate ignored", "事件已处理，忽略重复消息"}
	UnsupportedType = Text{"unsupported event type", "事件类型不支持"}
	SendingFailed   = Text{"sending failed", "消息发送失败"}
	ConsumingFailed = Text{"consuming failed", "消息消费失败"}
)

// OfFailure returns the text for a handler's error. An error with a method UnsupportedType() has a text of its own.
func OfFailure(err error) Text {
	var unsupported interface{ UnsupportedType() }
	if errors.As(err, &unsupported) {
		return UnsupportedType
	}
	return ConsumingFailed
}

// In returns the text in a language.
func (t Text) In(l Language) string {
	if l == Chinese {
		return t.chinese
	}
	return t.english
}

// Line returns a log line: the text, and in English the consequence, such as "the message waits". Other languages have
// the text alone, and the attributes of the line.
func (t Text) Line(l Language, consequence string) string {
	if l == Chinese {
		return t.chinese
	}
	return t.english + "; " + consequence
}
