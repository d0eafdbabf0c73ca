package relay

import "time"

// delivered counts one message that waited and is delivered now.
func (s *shard) delivered(payload int, nanos int64) {
	s.count.FramesForwarded++
	s.count.BytesForwarded += uint64(payload)
	s.count.Delivered(time.Duration(nanos))
}

// deliveredAtOnce counts messages that their destination took as they came.
func (s *shard) deliveredAtOnce(frames int, payload int64) {
	s.count.FramesForwarded += uint64(frames)
	s.count.BytesForwarded += uint64(payload)
	s.count.DeliveredAtOnce(frames)
}
