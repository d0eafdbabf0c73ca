package edge

import (
	"time"

	"sluice/codec/http1"
)

// dateLine keeps the Date field line of the current second.
type dateLine struct {
	line  []byte
	until int64 // loop time at which the second ends
}

// at returns the line for now, the loop's time. It is valid until the next call.
func (d *dateLine) at(now int64) []byte {
	if now >= d.until {
		wall := time.Now()
		d.line = http1.AppendDate(d.line[:0], wall)
		d.until = now + int64(time.Second) - int64(wall.Nanosecond())
	}
	return d.line
}
