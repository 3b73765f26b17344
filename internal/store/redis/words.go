package redis

import "github.com/msghandler/msghandler/internal/halfmsg"

// words are the settlements of a batch, each once: messages claimed together tend to share settlements.
type words struct {
	by      []string // the rules, by event
	rules   []any
	ruleOf  map[halfmsg.Event]int // from 1
	words   []any
	numbers map[halfmsg.Settlement]int // from 1, by a word without its message
}

func newWords(by []string) *words {
	return &words{by: by, ruleOf: map[halfmsg.Event]int{}, numbers: map[halfmsg.Settlement]int{}}
}

// add gives the number of a word.
func (w *words) add(word halfmsg.Settlement) int {
	word.Name, word.Fingerprint, word.OrderingKey = halfmsg.Name{}, "", ""
	if n := w.numbers[word]; n > 0 {
		return n
	}
	if w.ruleOf[word.Event] == 0 {
		w.rules = append(w.rules, w.by[word.Event])
		w.ruleOf[word.Event] = len(w.rules)
	}
	hold := int64(0)
	if word.Hold > 0 {
		hold = leaseMS(word.Hold)
	}
	w.words = append(w.words, w.ruleOf[word.Event], string(word.Token), clamp(word.After, maxDue).Milliseconds(), hold,
		shorten(word.Cause))
	w.numbers[word] = len(w.numbers) + 1
	return len(w.numbers)
}

// args are the arguments of move.lua that come before the messages.
func (w *words) args() []any {
	args := append([]any{len(w.rules)}, w.rules...)
	return append(append(args, len(w.numbers)), w.words...)
}
