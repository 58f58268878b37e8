"""The modules' processes: started, watched, told and listened to."""
