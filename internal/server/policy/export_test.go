package policy

// MaxUses is how many producers are counted apart.
const MaxUses = maxUses

// Uses is how many producers are counted apart now.
func (b *Book) Uses() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.uses)
}
