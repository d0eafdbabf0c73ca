package kyber

// A Batch is the relay's half of a pairing request: encapsulation keys go in, ciphertexts and shared
// keys come out. It is a Job; its steps are its keys.
//
// The zero value is empty. The caller owns it except between Submit and OnDone; nothing in it is
// shared with another batch, and its arrays are used again after Reset.
type Batch struct {
	// OnDone is called on a worker when every key has its answer.
	OnDone func(*Batch)

	strength Strength
	count    int
	eks      []byte
	cs       []byte
	keys     []byte
	refused  []bool
}

// Reset makes room for count keys of a strength and forgets what was there.
func (b *Batch) Reset(s Strength, count int) {
	b.Wipe()
	b.strength, b.count = s, count
	b.eks = grow(b.eks, count*s.EncapsulationKeyBytes())
	b.cs = grow(b.cs, count*s.CiphertextBytes())
	b.keys = grow(b.keys, count*SharedKeyBytes)
	b.refused = grow(b.refused, count)
	clear(b.refused)
}

// Len is the number of keys: the steps to submit.
func (b *Batch) Len() int { return b.count }

// Key is the room for encapsulation key i, to be filled before Submit.
func (b *Batch) Key(i int) []byte { return at(b.eks, i, b.strength.EncapsulationKeyBytes()) }

// Ciphertext is the answer for key i.
func (b *Batch) Ciphertext(i int) []byte { return at(b.cs, i, b.strength.CiphertextBytes()) }

// SharedKey is the secret for key i. It is zeroed by Wipe and Reset.
func (b *Batch) SharedKey(i int) *[SharedKeyBytes]byte {
	return (*[SharedKeyBytes]byte)(at(b.keys, i, SharedKeyBytes))
}

// Refused tells whether key i failed the input check. A caller that used CheckKey never sees it.
func (b *Batch) Refused(i int) bool { return b.refused[i] }

// Step encapsulates to key i.
func (b *Batch) Step(e *Engine, i int) {
	b.refused[i] = e.Encapsulate(b.strength, b.Ciphertext(i), b.SharedKey(i)[:], b.Key(i)) != nil
}

// Done hands the batch back.
func (b *Batch) Done() { b.OnDone(b) }

// Wipe zeroes the shared keys.
func (b *Batch) Wipe() { clear(b.keys) }

func at(b []byte, i, size int) []byte { return b[i*size : (i+1)*size : (i+1)*size] }

func grow[T any](b []T, size int) []T {
	if cap(b) < size {
		return make([]T, size)
	}
	return b[:size]
}
